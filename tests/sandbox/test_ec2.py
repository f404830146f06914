from __future__ import annotations

import base64
import threading
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.conftest import boto, code_of


def test_instances_are_paged_and_every_one_comes_once(calm):
    pages = calm.ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 7})
    ids = [i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"]]
    assert len(ids) == len(set(ids)) == 44


def test_max_results_goes_neither_with_ids_nor_beyond_its_bounds(calm):
    one = calm.pool("solo")[0].id
    assert (
        code_of(lambda: calm.ec2.describe_instances(InstanceIds=[one], MaxResults=5)) == "InvalidParameterCombination"
    )
    assert code_of(lambda: calm.ec2.describe_instance_status(MaxResults=2)) == "InvalidParameterValue"
    assert code_of(lambda: calm.ec2.describe_instances(NextToken="nonsense")) == "InvalidNextToken"


def test_one_bad_id_fails_the_whole_call(calm):
    one = calm.pool("solo")[0].id
    missing = "i-" + "0" * 17
    assert code_of(lambda: calm.ec2.describe_instances(InstanceIds=[one, missing])) == "InvalidInstanceID.NotFound"
    assert code_of(lambda: calm.ec2.describe_instances(InstanceIds=["i-x"])) == "InvalidInstanceID.Malformed"


def test_filters_are_anded_and_their_values_ored(calm):
    found = calm.ec2.describe_instances(
        Filters=[
            {"Name": "availability-zone", "Values": ["us-east-1a", "us-east-1b"]},
            {"Name": "tag:Name", "Values": ["infer-*"]},
        ]
    )["Reservations"]
    assert len(found) == 4
    assert (
        code_of(lambda: calm.ec2.describe_instances(Filters=[{"Name": "moon", "Values": ["x"]}]))
        == "InvalidParameterValue"
    )


def test_each_instance_type_says_what_gpus_it_has(calm):
    rows = calm.ec2.describe_instance_types(InstanceTypes=["p5.48xlarge", "g6e.12xlarge"])["InstanceTypes"]
    assert {r["InstanceType"]: (r["GpuInfo"]["Gpus"][0]["Name"], r["GpuInfo"]["Gpus"][0]["Count"]) for r in rows} == {
        "p5.48xlarge": ("H100", 8),
        "g6e.12xlarge": ("L40S", 4),
    }
    assert code_of(lambda: calm.ec2.describe_instance_types(InstanceTypes=["p9.huge"])) == "InvalidInstanceType"


def test_owners_show_in_tags_and_operator(calm):
    rows = [i for r in calm.ec2.describe_instances()["Reservations"] for i in r["Instances"]]
    by_name = {next(t["Value"] for t in i["Tags"] if t["Key"] == "Name"): i for i in rows}
    tags = {n: {t["Key"] for t in i["Tags"]} for n, i in by_name.items()}
    assert "aws:autoscaling:groupName" in tags["train-01"]
    assert "aws:ec2launchtemplate:id" in tags["solo-01"] and "aws:autoscaling:groupName" not in tags["solo-01"]
    assert by_name["managed-01"]["Operator"] == {"Managed": True, "Principal": "ecs.amazonaws.com"}
    assert "AWSBatchServiceTag" in tags["batch-01"]


def launch(fleet, token="", zone="us-east-1a", **more):
    """In the fleet's subnet of that zone, or where `more` says."""
    place = {} if {"SubnetId", "NetworkInterfaces"} & {*more} or not zone else {"SubnetId": fleet.subnet(zone)}
    return fleet.ec2.run_instances(
        MinCount=1, MaxCount=1, LaunchTemplate={"LaunchTemplateName": "solo", "Version": "2"}, ClientToken=token,
        **place, **more,
    )["Instances"][0]  # fmt: skip


def test_one_token_gives_one_instance_even_from_two_callers_at_once(fleet):
    ids = []
    threads = [threading.Thread(target=lambda: ids.append(launch(fleet, "intent-1")["InstanceId"])) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(ids) == 2 and len(set(ids)) == 1
    assert launch(fleet, "intent-1")["InstanceId"] == ids[0]
    assert launch(fleet, "intent-2")["InstanceId"] != ids[0]
    assert code_of(lambda: launch(fleet, "intent-1", "us-east-1c")) == "IdempotentParameterMismatch"
    assert code_of(lambda: launch(fleet, "x" * 65)) == "InvalidParameterValue"


def test_a_launch_runs_registers_and_serves(fleet):
    made = launch(fleet, "t", "us-east-1b")
    assert made["State"]["Name"] == "pending" and made["Placement"]["AvailabilityZone"] == "us-east-1b"
    fleet.advance(5)
    status = fleet.ec2.describe_instance_status(InstanceIds=[made["InstanceId"]])["InstanceStatuses"][0]
    assert status["InstanceState"]["Name"] == "running" and status["SystemStatus"]["Status"] == "initializing"
    assert made["InstanceId"] not in fleet.world.container_of
    fleet.until(lambda: made["InstanceId"] in fleet.world.container_of, within=20)
    container = fleet.container(made["InstanceId"])
    assert container.status == "ACTIVE" and container.provider is None and len(container.gpus) == 8
    fleet.advance(10)
    status = fleet.ec2.describe_instance_status(InstanceIds=[made["InstanceId"]])["InstanceStatuses"][0]
    assert status["InstanceStatus"]["Status"] == "ok"


def test_a_zone_without_capacity_refuses_and_another_does_not(fleet):
    victim = fleet.pool("solo")[0]
    control(fleet, "inject", instances=[victim.id], code="NO_CAPACITY")
    assert code_of(lambda: launch(fleet, "a", victim.zone)) == "InsufficientInstanceCapacity"
    other = next(z for z in fleet.world.zones if z != victim.zone)
    assert launch(fleet, "b", other)["Placement"]["AvailabilityZone"] == other
    control(fleet, "inject", instances=[victim.id], code="NO_CAPACITY", clear=True)
    assert launch(fleet, "c", victim.zone)


def control(fleet, action, **body):
    from healthboard.sandbox.client import call

    return call(action, body, fleet.home)


def test_termination_protection_holds_until_it_is_lifted(fleet):
    one = fleet.pool("solo")[0]
    fleet.ec2.modify_instance_attribute(InstanceId=one.id, DisableApiTermination={"Value": True})
    told = fleet.ec2.describe_instance_attribute(InstanceId=one.id, Attribute="disableApiTermination")
    assert told["DisableApiTermination"]["Value"] is True
    assert code_of(lambda: fleet.ec2.terminate_instances(InstanceIds=[one.id])) == "OperationNotPermitted"
    fleet.ec2.modify_instance_attribute(InstanceId=one.id, DisableApiTermination={"Value": False})
    assert (
        fleet.ec2.terminate_instances(InstanceIds=[one.id])["TerminatingInstances"][0]["PreviousState"]["Name"]
        == "running"
    )


def test_terminating_is_idempotent_and_takes_the_registration_along(fleet):
    one = fleet.pool("solo")[0]
    for _ in range(2):
        state = fleet.ec2.terminate_instances(InstanceIds=[one.id])["TerminatingInstances"][0]["CurrentState"]["Name"]
        assert state == "shutting-down"
    fleet.advance(5)
    assert (
        fleet.ec2.describe_instances(InstanceIds=[one.id])["Reservations"][0]["Instances"][0]["State"]["Name"]
        == "terminated"
    )
    assert fleet.container(one).status == "INACTIVE"
    assert (
        fleet.ec2.terminate_instances(InstanceIds=[one.id])["TerminatingInstances"][0]["CurrentState"]["Name"]
        == "terminated"
    )
    for call in ("reboot_instances", "start_instances", "stop_instances"):
        assert code_of(lambda call=call: getattr(fleet.ec2, call)(InstanceIds=[one.id])) == "IncorrectInstanceState"


def test_a_reboot_changes_the_boot_and_keeps_the_host(fleet):
    one = fleet.pool("solo")[0]
    before, cards = one.boot_id, one.gpus
    fleet.ec2.reboot_instances(InstanceIds=[one.id])
    fleet.advance(2)
    assert one.boot_id == before and not fleet.container(one).connected
    fleet.advance(5)
    status = fleet.ec2.describe_instance_status(InstanceIds=[one.id])["InstanceStatuses"][0]
    assert status["InstanceStatus"]["Status"] == "impaired" and status["SystemStatus"]["Status"] == "ok"
    assert "ImpairedSince" in status["InstanceStatus"]["Details"][0]
    fleet.until(lambda: one.boot_id != before, within=15)
    fleet.until(lambda: fleet.container(one).connected, within=10)
    assert one.gpus == cards
    assert all(
        t.last == "STOPPED" or t.created_at >= one.booted_at for t in fleet.world.live_tasks(fleet.container(one).id)
    )


def test_stop_and_start_moves_to_other_gpus(fleet):
    one = fleet.pool("solo")[0]
    cards = one.gpus
    fleet.ec2.stop_instances(InstanceIds=[one.id])
    fleet.until(lambda: one.state == "stopped", within=10)
    fleet.advance(1)
    container = fleet.container(one)
    assert container.status == "ACTIVE" and not container.connected
    assert all(s["InstanceId"] != one.id for s in fleet.ec2.describe_instance_status()["InstanceStatuses"])
    every = fleet.ec2.describe_instance_status(IncludeAllInstances=True)["InstanceStatuses"]
    assert next(s for s in every if s["InstanceId"] == one.id)["SystemStatus"]["Status"] == "not-applicable"
    fleet.ec2.start_instances(InstanceIds=[one.id])
    fleet.until(lambda: container.connected, within=25)
    assert {c["uuid"] for c in one.gpus}.isdisjoint({c["uuid"] for c in cards})
    assert container.gpus == [c["uuid"] for c in one.gpus]


def test_what_ecs_manages_is_refused(fleet):
    assert (
        code_of(lambda: fleet.ec2.terminate_instances(InstanceIds=[fleet.pool("managed")[0].id]))
        == "UnsupportedOperation"
    )


def test_console_output_holds_the_kernel_lines(fleet):
    one = fleet.pool("solo")[0]
    control(fleet, "inject", instances=[one.id], code="XID_79", gpu=3)
    text = fleet.ec2.get_console_output(InstanceId=one.id, Latest=True)["Output"]
    assert f"NVRM: Xid (PCI:{one.gpus[3]['pci']}): 79, GPU has fallen off the bus." in text


def test_tags_are_set_and_reserved_ones_refused(fleet):
    one = fleet.pool("solo")[0]
    fleet.ec2.create_tags(Resources=[one.id], Tags=[{"Key": "healthboard:pause", "Value": "demo"}])
    found = fleet.ec2.describe_tags(Filters=[{"Name": "key", "Values": ["healthboard:pause"]}])["Tags"]
    assert [t["ResourceId"] for t in found] == [one.id]
    assert (
        code_of(lambda: fleet.ec2.create_tags(Resources=[one.id], Tags=[{"Key": "aws:x", "Value": "y"}]))
        == "InvalidParameterValue"
    )
    fleet.ec2.delete_tags(Resources=[one.id], Tags=[{"Key": "healthboard:pause"}])
    assert fleet.ec2.describe_tags(Filters=[{"Name": "key", "Values": ["healthboard:pause"]}])["Tags"] == []


def test_launch_templates_resolve_default_latest_and_number(calm):
    def versions(*wanted):
        rows = calm.ec2.describe_launch_template_versions(LaunchTemplateName="solo", Versions=list(wanted))
        return [r["VersionNumber"] for r in rows["LaunchTemplateVersions"]]

    assert versions("$Default", "$Latest", "1") == [2, 3, 1]
    assert code_of(lambda: versions("9")) == "InvalidLaunchTemplateId.VersionNotFound"
    data = calm.ec2.describe_launch_template_versions(LaunchTemplateName="solo", Versions=["2"])[
        "LaunchTemplateVersions"
    ][0]
    assert "ECS_CLUSTER=gpu" in base64.b64decode(data["LaunchTemplateData"]["UserData"]).decode()


def test_throttle_and_off_reach_every_call_but_not_the_controls(fleet):
    control(fleet, "aws", mode="throttle")
    codes = set()
    for _ in range(20):
        try:
            fleet.ec2.describe_instances()
        except ClientError as error:
            codes.add(error.response["Error"]["Code"])
    assert codes == {"RequestLimitExceeded"}
    control(fleet, "aws", mode="off")
    with pytest.raises(Exception) as caught:
        fleet.ecs.list_clusters()
    assert not isinstance(caught.value, ClientError)
    control(fleet, "aws", mode="ok")
    assert fleet.ecs.list_clusters()["clusterArns"]


def test_a_rule_loses_the_answer_after_the_effect_once(fleet):
    control(fleet, "rules", rules=[{"operation": "RunInstances", "do": "drop_after", "times": 1}])
    with pytest.raises(Exception) as caught:
        launch(fleet, "once")
    assert not isinstance(caught.value, ClientError)
    made = launch(fleet, "once")["InstanceId"]
    assert [i for i in fleet.world.instances.values() if i.client_token == "once"] == [fleet.world.instances[made]]


def test_botocore_retries_a_throttled_read_by_itself(fleet):
    control(fleet, "rules", rules=[{"operation": "DescribeInstances", "do": "error", "times": 1}])
    assert boto(fleet.url, "ec2", attempts=3).describe_instances()["Reservations"]


def test_a_reservation_gives_its_slots_and_no_more(fleet):
    made = fleet.ec2.create_capacity_reservation(
        InstanceType="p4d.24xlarge", InstancePlatform="Linux/UNIX", AvailabilityZone="us-east-1a", InstanceCount=1
    )["CapacityReservation"]["CapacityReservationId"]
    target = {
        "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": made}},
    }
    first = launch(fleet, "r1", **target)
    assert first["CapacityReservationId"] == made
    told = fleet.ec2.describe_capacity_reservations(CapacityReservationIds=[made])["CapacityReservations"][0]
    assert (told["TotalInstanceCount"], told["AvailableInstanceCount"]) == (1, 0)
    assert code_of(lambda: launch(fleet, "r2", **target)) == "ReservationCapacityExceeded"
    fleet.ec2.terminate_instances(InstanceIds=[first["InstanceId"]])
    assert launch(fleet, "r3", **target)["CapacityReservationId"] == made


def test_no_subnet_goes_beside_network_interfaces_whoever_names_them(fleet):
    data = fleet.world.template_named("solo").versions["2"]
    subnet = {"SubnetId": fleet.subnet("us-east-1b")}
    card = {"DeviceIndex": 0, "InterfaceType": "efa"}
    refused = "InvalidParameterCombination"
    assert code_of(lambda: launch(fleet, "a", NetworkInterfaces=[{**card, **subnet}])) == refused, "groups beside them"
    group = data.pop("SecurityGroupIds")
    assert launch(fleet, "b", NetworkInterfaces=[{**card, **subnet}])["Placement"]["AvailabilityZone"] == "us-east-1b"
    data["NetworkInterfaces"] = [{**card, "Groups": group}]
    assert code_of(lambda: launch(fleet, "c", **subnet)) == refused, "those of the template count too"
    assert code_of(lambda: launch(fleet, "d", SecurityGroupIds=group)) == refused
    assert launch(fleet, "e", NetworkInterfaces=[{**card, **subnet}])["Placement"]["AvailabilityZone"] == "us-east-1b"
    nowhere = [{**card, **subnet}, {"DeviceIndex": 1, "SubnetId": "subnet-0"}]
    assert code_of(lambda: launch(fleet, "f", NetworkInterfaces=nowhere)) == "InvalidSubnetID.NotFound"
    assert code_of(lambda: launch(fleet, "g", NetworkInterfaces=[{**subnet}])) == "InvalidParameterValue", "which card?"


def test_a_persistent_spot_request_starts_another_until_it_is_cancelled(fleet):
    def spot(token: str, **options) -> dict:
        return launch(fleet, token, InstanceMarketOptions={"MarketType": "spot", "SpotOptions": options})

    def told(made: dict) -> tuple:
        ids = [made["SpotInstanceRequestId"]]
        one = fleet.ec2.describe_spot_instance_requests(SpotInstanceRequestIds=ids)["SpotInstanceRequests"][0]
        return one["Type"], one["State"], one["InstanceId"]

    def ended(made: dict) -> set[str]:
        """The instances that are there in its stead once it has ended."""
        before = {*fleet.world.instances}
        fleet.ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
        fleet.advance(8)
        assert fleet.world.instances[made["InstanceId"]].state == "terminated"
        return {*fleet.world.instances} - before

    assert "SpotInstanceRequestId" not in launch(fleet, "a")
    assert code_of(lambda: spot("b", SpotInstanceType="persistent")) == "InvalidParameterCombination"
    once = spot("c", SpotInstanceType="one-time")
    lasting = spot("d", SpotInstanceType="persistent", InstanceInterruptionBehavior="stop")
    assert told(once) == ("one-time", "active", once["InstanceId"]) and once["InstanceLifecycle"] == "spot"
    assert told(lasting) == ("persistent", "active", lasting["InstanceId"])
    assert not ended(once) and told(once)[1] == "closed"
    (again,) = ended(lasting)
    assert told(lasting) == ("persistent", "active", again), "the same request"
    fleet.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[lasting["SpotInstanceRequestId"]])
    assert told(lasting) == ("persistent", "cancelled", again)
    assert fleet.world.instances[again].state in ("pending", "running"), "its instance is left alone"
    assert not ended({"InstanceId": again})
    unknown = ["sir-0"]
    refused = code_of(lambda: fleet.ec2.describe_spot_instance_requests(SpotInstanceRequestIds=unknown))
    assert refused == "InvalidSpotInstanceRequestID.NotFound"


def test_without_a_subnet_ec2_goes_into_the_default_vpc_where_the_fleets_security_groups_are_not(fleet):
    assert launch(fleet, "0", "")["State"]["Name"] == "pending", "where the fleet is in the default VPC"
    fleet.engine.sandbox.config = replace(fleet.engine.sandbox.config, own_vpc=True)
    data = fleet.world.template_named("solo").versions["2"]
    assert code_of(lambda: launch(fleet, "a", "")) == "InvalidParameter"
    assert code_of(lambda: launch(fleet, "b", "", Placement={"AvailabilityZone": "us-east-1b"})) == "InvalidParameter"
    data["NetworkInterfaces"] = [{"DeviceIndex": 0, "Groups": data.pop("SecurityGroupIds")}]
    assert code_of(lambda: launch(fleet, "c", "")) == "InvalidParameter"
    data["NetworkInterfaces"] = [{"DeviceIndex": 0}]
    assert launch(fleet, "d", "")["State"]["Name"] == "pending", "the default VPC has its own group"
    one = fleet.pool("solo")[0]
    fleet.ec2.terminate_instances(InstanceIds=[one.id])
    fleet.advance(5)
    told = fleet.ec2.describe_instances(InstanceIds=[one.id])["Reservations"][0]["Instances"][0]
    assert told["State"]["Name"] == "terminated" and not {"SubnetId", "VpcId"} & {*told}
