package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/oiweiwei/go-msrpc/dcerpc"
	"github.com/oiweiwei/go-msrpc/msrpc/dcetypes"
	"github.com/oiweiwei/go-msrpc/msrpc/dtyp"
	"github.com/oiweiwei/go-msrpc/msrpc/epm/epm/v3"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmq"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmr/qmmgmt/v1"
)

// lookUp asks an endpoint mapper for the port of qmmgmt.
func lookUp(address, port string) {
	ctx, conn, options := dial(address, port, "NDR", "", "")
	client, err := epm.NewEpmClient(ctx, conn, options...)
	check(err)
	wanted := qmmgmt.QmmgmtSyntaxV1_0
	tower := dcetypes.FloorsToTower([]*dcetypes.Floor{
		{Protocol: uint8(dcetypes.ProtocolUUID), UUID: wanted.IfUUID, VersionMajor: wanted.IfVersionMajor,
			Data: []byte{0, 0}},
		{Protocol: uint8(dcetypes.ProtocolUUID), UUID: dcerpc.TransferNDR, VersionMajor: 2,
			Data: binary.LittleEndian.AppendUint16(nil, 0)},
		{Protocol: uint8(dcetypes.ProtocolRPC_CO), Data: []byte{0, 0}},
		{Protocol: uint8(dcetypes.ProtocolTCP), Data: []byte{0, 0}},
		{Protocol: uint8(dcetypes.ProtocolIP), Data: []byte{0, 0, 0, 0}},
	})
	found, err := client.Map(ctx, &epm.MapRequest{MapTower: tower, MaxTowers: 4})
	check(err)
	for _, one := range found.Towers {
		say(one.Binding().StringBinding.Endpoint)
	}
}

// object is what "machine", "session" or a queue's direct name stands for.
func object(name string) *qmmgmt.ManagementObject {
	switch name {
	case "machine":
		return &qmmgmt.ManagementObject{Type: qmmgmt.ManagementObjectTypeMachine,
			ManagementObject: &qmmgmt.ManagementObject_ManagementObject{
				Value: &qmmgmt.ManagementObject_Reserved1{}}}
	case "session":
		return &qmmgmt.ManagementObject{Type: qmmgmt.ManagementObjectTypeSession,
			ManagementObject: &qmmgmt.ManagementObject_ManagementObject{
				Value: &qmmgmt.ManagementObject_Reserved2{}}}
	}
	return &qmmgmt.ManagementObject{Type: qmmgmt.ManagementObjectTypeQueue,
		ManagementObject: &qmmgmt.ManagementObject_ManagementObject{
			Value: &qmmgmt.ManagementObject_QueueFormat{QueueFormat: format(name)}}}
}

// info is a request for properties, with a VT_NULL for each.
func info(name string, properties []uint32) *qmmgmt.ManagementGetInfoRequest {
	values := make([]*mqmq.PropertyVariant, len(properties))
	for place := range values {
		values[place] = &mqmq.PropertyVariant{VT: 1, VarUnion: &mqmq.PropertyVariant_VarUnion{
			Value: &mqmq.PropertyVariant_VarUnion_0{}}}
	}
	return &qmmgmt.ManagementGetInfoRequest{ObjectFormat: object(name), CreatePartition: uint32(len(properties)),
		Property: properties, Var: values}
}

// shown is a value as JSON has it: octets and GUIDs as text.
func shown(value any) any {
	switch value := value.(type) {
	case *mqmq.Blob:
		return hex.EncodeToString(value.BlobData)
	case *mqmq.UnicodeStringArray:
		return value.Elems
	case *mqmq.Uint32Array:
		return value.Elems
	case *mqmq.LongArray:
		return value.Elems
	case *mqmq.ClassIDArray:
		found := []string{}
		for _, one := range value.Elems {
			found = append(found, one.UUID().String())
		}
		return found
	case *mqmq.UlargeIntegerArray:
		found := []uint64{}
		for _, one := range value.Elems {
			found = append(found, one.QuadPart)
		}
		return found
	case *mqmq.PropertyVariantArray:
		found := []any{}
		for _, one := range value.Elems {
			found = append(found, shown(one.VarUnion.GetValue()))
		}
		return found
	case *dtyp.LargeInteger:
		return value.QuadPart
	}
	return value
}

// manage performs commands: "info OBJECT PROPERTY,..." and "act OBJECT ACTION".
func manage(address, port, syntax, user, password string, commands []string) {
	ctx, conn, options := dial(address, port, syntax, user, password)
	defer conn.Close(ctx)
	client, err := qmmgmt.NewQmmgmtClient(ctx, conn, options...)
	if err != nil {
		say("bind", "refused", fmt.Sprint(err))
		return
	}
	for _, command := range commands {
		words := strings.SplitN(command, " ", 3)
		if words[0] == "act" {
			act(ctx, client, words[1], words[2])
		} else {
			show(ctx, client, words[1], words[2])
		}
	}
}

func act(ctx context.Context, client qmmgmt.QmmgmtClient, name, action string) {
	answer, err := client.ManagementAction(ctx, &qmmgmt.ManagementActionRequest{ObjectFormat: object(name), Action: action})
	if answer == nil {
		say("act", name, action, fmt.Sprint(err))
		return
	}
	say("act", name, action, fmt.Sprintf("0x%08x", uint32(answer.Return)))
}

func show(ctx context.Context, client qmmgmt.QmmgmtClient, name, list string) {
	properties := []uint32{}
	for _, one := range strings.Split(list, ",") {
		number, err := strconv.ParseUint(one, 10, 32)
		check(err)
		properties = append(properties, uint32(number))
	}
	answer, err := client.ManagementGetInfo(ctx, info(name, properties))
	if answer == nil {
		say("info", name, fmt.Sprint(err))
		return
	}
	values := []any{}
	for _, one := range answer.Var {
		if one.VT > 1 {
			values = append(values, shown(one.VarUnion.GetValue()))
		} else {
			values = append(values, nil)
		}
	}
	say("info", name, fmt.Sprintf("0x%08x", uint32(answer.Return)), values)
}
