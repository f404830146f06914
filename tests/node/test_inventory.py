"""A lost GPU keeps its name, and another machine's GPUs are never taken for this one's."""

from __future__ import annotations

from workers.node import healthboard_node as node


def _inventory(machine, boot="boot-1", who="i-1"):
    return node.Inventory(str(machine.path / "inventory.json"), who, boot)


def test_a_lost_gpu_is_listed_with_what_is_remembered_of_it(machine, probe):
    eye, inventory = probe(), _inventory(machine)
    inventory.complete(eye.read())
    machine.set(3, handle=15)
    gpu = inventory.complete(eye.read())[3]
    assert (gpu["status"], gpu["code"], gpu["uuid"], gpu["pci"], gpu["serial"]) == (
        "lost", 15, machine.uuid(3), "0000:3e:00", "1650000003",
    )  # fmt: skip
    assert (gpu["temperature_c"], gpu["row_remap"]["failure"]) == (None, None)


def test_several_lost_gpus_are_told_apart_by_their_index(machine, probe):
    eye, inventory = probe(), _inventory(machine)
    inventory.complete(eye.read())
    for i in (1, 6):
        machine.set(i, lost=1)
    gpus = inventory.complete(eye.read())
    lost = [(g["index"], g["uuid"]) for g in gpus if g["status"] == "lost"]
    assert lost == [(1, machine.uuid(1)), (6, machine.uuid(6))]


def test_a_gpu_that_nvml_no_longer_counts_is_listed_as_lost(machine, probe):
    eye = probe()
    _inventory(machine).complete(eye.read())
    machine.write("count 7")
    reading = eye.read()
    gpus = _inventory(machine, boot="boot-2").complete(reading)  # remembered over a restart and a reboot
    assert reading["count"] == 7
    assert [(g["uuid"], g["status"]) for g in gpus if g["status"] != "ok"] == [(machine.uuid(7), "lost")]


def test_where_nvml_counts_none_no_gpu_is_called_lost_and_none_is_forgotten(machine, probe):
    eye, inventory, mark = probe(), _inventory(machine), machine.mark()
    inventory.complete(eye.read())
    machine.write("count 0")
    reading = eye.read()
    assert (reading["state"], reading["count"], inventory.complete(reading)) == ("ok", 0, [])
    assert node.worst_signs(reading, []) == {("nvml", "no GPUs")}
    machine.reset(mark)
    machine.write("count 1")
    gpus = inventory.complete(eye.read())
    assert [g["status"] for g in gpus] == ["ok"] + ["lost"] * 7
    assert {g["code"] for g in gpus[1:]} == {28}


def test_a_missing_gpu_never_takes_the_index_of_another(machine, probe):
    eye = probe()
    _inventory(machine).complete(eye.read())
    machine.write("count 7")
    machine.set(2, uuid=machine.uuid(7))  # the order has moved up, and number 2 is gone
    gpus = _inventory(machine, boot="boot-2").complete(eye.read())
    assert sorted(g["index"] for g in gpus) == list(range(8))
    assert [g["uuid"] for g in gpus if g["status"] == "lost"] == [machine.uuid(2)]


def test_index_is_not_identity_after_a_reboot(machine, probe):
    eye = probe()
    _inventory(machine).complete(eye.read())
    machine.set(0, uuid=machine.uuid(7))
    machine.set(7, uuid=machine.uuid(0))
    machine.set(4, handle=15)
    machine.set(5, handle=15)
    gpus = _inventory(machine, boot="boot-2").complete(eye.read())
    assert (gpus[0]["uuid"], gpus[7]["uuid"]) == (machine.uuid(7), machine.uuid(0))


def test_a_copied_disk_does_not_bring_another_machines_gpus(machine, probe):
    eye = probe()
    _inventory(machine).complete(eye.read())
    machine.write("count 7")
    assert len(_inventory(machine, boot="boot-9", who="i-2").complete(eye.read())) == 7


def test_an_instance_that_started_on_other_hardware_forgets_the_old_one(machine, probe):
    eye = probe()
    _inventory(machine).complete(eye.read())
    for i in range(8):
        machine.set(i, uuid=f"GPU-new-{i}")
    gpus = _inventory(machine, boot="boot-2").complete(eye.read())
    assert [g["uuid"] for g in gpus] == [f"GPU-new-{i}" for i in range(8)]


def test_a_blind_reading_teaches_nothing(machine, probe):
    eye, inventory = probe(), _inventory(machine)
    inventory.complete(eye.read())
    assert inventory.complete(node._failure("hung", 0, "")) == []
    assert len(inventory.known) == 8
