package main

import (
	"encoding/hex"
	"fmt"

	"github.com/oiweiwei/go-msrpc/msrpc/dtyp"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmq"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmr/qmmgmt/v1"
	"github.com/oiweiwei/go-msrpc/ndr"
)

func write(name string, value ndr.Marshaler) {
	plain, err := ndr.Marshal(value)
	check(err)
	fmt.Println(name, "NDR", dashed(plain))
}

func writeBoth(name string, value ndr.Marshaler) {
	write(name, value)
	wide, err := ndr.Marshal64(value)
	check(err)
	fmt.Println(name, "NDR64", dashed(wide))
}

func dashed(octets []byte) string {
	if len(octets) == 0 {
		return "-"
	}
	return hex.EncodeToString(octets)
}

func text(value string) *mqmq.PropertyVariant {
	return &mqmq.PropertyVariant{VT: 31, VarUnion: &mqmq.PropertyVariant_VarUnion{
		Value: &mqmq.PropertyVariant_VarUnion_UnicodeString{UnicodeString: value}}}
}

func texts(values ...string) *mqmq.PropertyVariant {
	return &mqmq.PropertyVariant{VT: 0x101F, VarUnion: &mqmq.PropertyVariant_VarUnion{
		Value: &mqmq.PropertyVariant_VarUnion_UnicodeStringArray{
			UnicodeStringArray: &mqmq.UnicodeStringArray{ElemsCount: uint32(len(values)), Elems: values}}}}
}

func unsigned(value uint32) *mqmq.PropertyVariant {
	return &mqmq.PropertyVariant{VT: 19, VarUnion: &mqmq.PropertyVariant_VarUnion{
		Value: &mqmq.PropertyVariant_VarUnion_Ulong{Ulong: value}}}
}

func long(value int32) *mqmq.PropertyVariant {
	return &mqmq.PropertyVariant{VT: 3, VarUnion: &mqmq.PropertyVariant_VarUnion{
		Value: &mqmq.PropertyVariant_VarUnion_Long{Long: value}}}
}

func large(value int64) *mqmq.PropertyVariant {
	return &mqmq.PropertyVariant{VT: 20, VarUnion: &mqmq.PropertyVariant_VarUnion{
		Value: &mqmq.PropertyVariant_VarUnion_LargeInteger{LargeInteger: &dtyp.LargeInteger{QuadPart: value}}}}
}

func blob(octets []byte) *mqmq.PropertyVariant {
	return &mqmq.PropertyVariant{VT: 65, VarUnion: &mqmq.PropertyVariant_VarUnion{
		Value: &mqmq.PropertyVariant_VarUnion_Blob{
			Blob: &mqmq.Blob{Length: uint32(len(octets)), BlobData: octets}}}}
}

func nothing() *mqmq.PropertyVariant {
	return &mqmq.PropertyVariant{VT: 1, VarUnion: &mqmq.PropertyVariant_VarUnion{
		Value: &mqmq.PropertyVariant_VarUnion_0{}}}
}

func unsignedMany(values ...uint32) *mqmq.PropertyVariant {
	return &mqmq.PropertyVariant{VT: 0x1013, VarUnion: &mqmq.PropertyVariant_VarUnion{
		Value: &mqmq.PropertyVariant_VarUnion_Uint32Array{
			Uint32Array: &mqmq.Uint32Array{ElemsCount: uint32(len(values)), Elems: values}}}}
}

func variants(values ...*mqmq.PropertyVariant) *mqmq.PropertyVariant {
	return &mqmq.PropertyVariant{VT: 0x100C, VarUnion: &mqmq.PropertyVariant_VarUnion{
		Value: &mqmq.PropertyVariant_VarUnion_PropertyVariantArray{
			PropertyVariantArray: &mqmq.PropertyVariantArray{ElemsCount: uint32(len(values)), Elems: values}}}}
}

// stubs prints the stub data of known values, as tests/remote_read/golden has them.
func stubs() {
	write("R_QMMgmtGetInfo_Request.machine", info("machine", []uint32{1, 2, 6}))
	write("R_QMMgmtGetInfo_Request.queue", info("OS:X\\q", []uint32{7}))
	write("R_QMMgmtGetInfo_Request.session", info("session", []uint32{1}))
	write("R_QMMgmtGetInfo_Response", &qmmgmt.ManagementGetInfoResponse{CreatePartition: 8,
		Var: []*mqmq.PropertyVariant{text("OS:X\\q"), texts("one", "three"), unsigned(0xFFFFFFFF), long(-1),
			large(-2), blob([]byte{1, 2, 3}), nothing(), variants(unsignedMany(1, 2), variants(texts("a"), texts()))}})
	write("R_QMMgmtAction_Request", &qmmgmt.ManagementActionRequest{ObjectFormat: object("OS:X\\q"), Action: "PAUSE"})
	write("R_QMMgmtAction_Response", &qmmgmt.ManagementActionResponse{Return: -0x3FF1FFDB})
}
