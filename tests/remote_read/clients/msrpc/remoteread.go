package main

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/oiweiwei/go-msrpc/msrpc/dtyp"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmp/qmcomm/v1"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmq"
	"github.com/oiweiwei/go-msrpc/msrpc/mqqp/qm2qm/v1"
	"github.com/oiweiwei/go-msrpc/msrpc/mqrr/remoteread/v1"
	"github.com/oiweiwei/go-msrpc/ndr"
)

const (
	receiveAccess, moveAccess                = 1, 4
	peekCurrent, peekNext             uint32 = 0x80000000, 0x80000001
	lookupPeekCurrent, lookupPeekNext uint32 = 0x40000010, 0x40000011
	everything                        uint32 = 0xFFFFFFFF
	subqueue                                 = ";later"
)

var octets = []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// guid is the one whose octets are 0 to 15.
func guid() *dtyp.GUID {
	return &dtyp.GUID{Data1: 0x03020100, Data2: 0x0504, Data3: 0x0706, Data4: octets[8:]}
}

func noGUID() *dtyp.GUID { return &dtyp.GUID{Data4: make([]byte, 8)} }

// status is the return value of an answer; an error without an answer ends the program.
func status[T any](answer *T, err error, value func(*T) int32) uint32 {
	if answer == nil {
		check(err)
	}
	return uint32(value(answer))
}

// sections are the kind, the whole size and the octets of each section.
func sections(found []*remoteread.SectionBuffer) []any {
	shown := []any{}
	for _, one := range found {
		shown = append(shown, []any{uint16(one.SectionBufferType), one.SectionSizeAlloc,
			hex.EncodeToString(one.SectionBuffer)})
	}
	return shown
}

// read calls every method of RemoteRead.
func read(address, port, syntax, queue string) {
	ctx, conn, options := dial(address, port, syntax, "", "")
	defer conn.Close(ctx)
	client, err := remoteread.NewRemoteReadClient(ctx, conn, options...)
	check(err)
	served, err := client.GetServerPort(ctx, &remoteread.GetServerPortRequest{})
	say("R_GetServerPort",
		status(served, err, func(one *remoteread.GetServerPortResponse) int32 { return int32(one.Return) }))
	opened, err := client.OpenQueue(ctx, &remoteread.OpenQueueRequest{QueueFormat: format(queue),
		Access: receiveAccess, ClientID: noGUID(), NonRoutingServer: 1, Major: 6})
	check(err)
	handle := (*remoteread.QueueNoSerialize)(opened.Context)
	start := func(lookup uint64, cursor, action uint32) *remoteread.StartReceiveResponse {
		answer, err := client.StartReceive(ctx, &remoteread.StartReceiveRequest{Context: handle, LookupID: lookup,
			Cursor: cursor, Action: action, RequestID: 1, MaxBodySize: everything, MaxCompoundMessageSize: everything})
		check(err)
		return answer
	}
	peeked := start(0, 0, peekCurrent)
	say("peek", uint32(peeked.Return), sections(peeked.PacketSections))
	lookup := uint64(4)<<56 | peeked.SequenceID
	cursor, err := client.CreateCursor(ctx, &remoteread.CreateCursorRequest{Context: handle})
	check(err)
	for _, action := range []uint32{peekCurrent, peekNext} {
		say("at the cursor", sections(start(0, cursor.Cursor, action).PacketSections))
	}
	closedCursor, err := client.CloseCursor(ctx, &remoteread.CloseCursorRequest{Context: handle, Cursor: cursor.Cursor})
	say("R_CloseCursor", status(closedCursor, err, func(one *remoteread.CloseCursorResponse) int32 { return one.Return }))
	say("by lookup identifier", sections(start(lookup, 0, lookupPeekCurrent).PacketSections))
	class, err := client.SetUserAcknowledgementClass(ctx,
		&remoteread.SetUserAcknowledgementClassRequest{Context: handle, LookupID: lookup})
	say("R_SetUserAcknowledgementClass",
		status(class, err, func(one *remoteread.SetUserAcknowledgementClassResponse) int32 { return one.Return }))
	move(ctx, client, handle, queue, lookup)
	taken := start(0, 0, 0)
	say("R_StartReceive", uint32(taken.Return), sections(taken.PacketSections))
	ended, err := client.EndReceive(ctx, &remoteread.EndReceiveRequest{Context: handle, Ack: 2, RequestID: 1})
	say("R_EndReceive", status(ended, err, func(one *remoteread.EndReceiveResponse) int32 { return one.Return }))
	transactional(ctx, client, handle)
	purged, err := client.PurgeQueue(ctx, &remoteread.PurgeQueueRequest{Context: handle})
	say("R_PurgeQueue", status(purged, err, func(one *remoteread.PurgeQueueResponse) int32 { return one.Return }))
	closed, err := client.CloseQueue(ctx, &remoteread.CloseQueueRequest{Context: opened.Context})
	check(err)
	say("R_CloseQueue", uint32(closed.Return), hex.EncodeToString(make([]byte, 16)))
}

// move moves a message into a subqueue.
func move(ctx context.Context, client remoteread.RemoteReadClient, handle *remoteread.QueueNoSerialize, queue string,
	lookup uint64) {
	target, err := client.OpenQueueForMove(ctx, &remoteread.OpenQueueForMoveRequest{QueueFormat: format(queue + subqueue),
		Access: moveAccess, ClientID: noGUID(), NonRoutingServer: 1, Major: 6})
	check(err)
	moved, err := client.MoveMessage(ctx, &remoteread.MoveMessageRequest{ContextFrom: handle, ContextTo: target.MoveContext,
		LookupID: lookup, TransactionID: &mqmq.TransactionUOW{Data: make([]byte, 16)}})
	say("R_MoveMessage", status(moved, err, func(one *remoteread.MoveMessageResponse) int32 { return one.Return }))
}

// transactional calls the methods that have to do with transactions, and cancels a read that does not exist.
func transactional(ctx context.Context, client remoteread.RemoteReadClient, handle *remoteread.QueueNoSerialize) {
	taken, err := client.StartTransactionalReceive(ctx, &remoteread.StartTransactionalReceiveRequest{Context: handle,
		RequestID: 1, MaxBodySize: everything, MaxCompoundMessageSize: everything,
		TransactionID: &mqmq.TransactionUOW{Data: make([]byte, 16)}})
	check(err)
	say("R_StartTransactionalReceive", uint32(taken.Return), sections(taken.PacketSections))
	ended, err := client.EndTransactionalReceive(ctx,
		&remoteread.EndTransactionalReceiveRequest{Context: handle, Ack: 1, RequestID: 1})
	say("R_EndTransactionalReceive",
		status(ended, err, func(one *remoteread.EndTransactionalReceiveResponse) int32 { return one.Return }))
	cancelled, err := client.CancelReceive(ctx, &remoteread.CancelReceiveRequest{Context: handle, RequestID: 1})
	say("R_CancelReceive", status(cancelled, err, func(one *remoteread.CancelReceiveResponse) int32 { return one.Return }))
	enlisted, err := client.EnlistRemoteTransaction(ctx, &remoteread.EnlistRemoteTransactionRequest{
		TransactionID: &mqmq.TransactionUOW{Data: octets}, PropagationTokenLength: 5, PropagationToken: []byte("token"),
		QueueFormat: format("OS:.\\private$\\q")})
	say("R_QMEnlistRemoteTransaction",
		status(enlisted, err, func(one *remoteread.EnlistRemoteTransactionResponse) int32 { return one.Return }))
}

// readOlder calls every method of qm2qm (MS-MQQP), on a queue that qmcomm opens.
func readOlder(address, port, syntax, queue string) {
	ctx, conn, options := dial(address, port, syntax, "", "")
	defer conn.Close(ctx)
	opening, err := qmcomm.NewQmcommClient(ctx, conn, options...)
	check(err)
	second, reading, more := dial(address, port, syntax, "", "")
	defer reading.Close(second)
	client, err := qm2qm.NewQm2qmClient(second, reading, more...)
	check(err)
	served, err := client.GetQMQMServerPort(ctx, &qm2qm.GetQMQMServerPortRequest{})
	say("RemoteQMGetQMQMServerPort",
		status(served, err, func(one *qm2qm.GetQMQMServerPortResponse) int32 { return int32(one.Return) }))
	version, err := client.GetVersion(ctx, &qm2qm.GetVersionRequest{})
	check(err)
	say("RemoteQmGetVersion", fmt.Sprint(version.Major, ".", version.Minor))
	remote, err := opening.OpenRemoteQueue(ctx, &qmcomm.OpenRemoteQueueRequest{QueueFormat: format(queue),
		DesiredAccess: receiveAccess, ClientGUID: noGUID()})
	check(err)
	session, err := client.OpenQueue(ctx, &qm2qm.OpenQueueRequest{ClientGUID: noGUID(), Queue: remote.Queue,
		QueueID: remote.QueueID, ContextID: remote.ContextID})
	check(err)
	say("RemoteQMOpenQueue", uint32(session.Return))
	wanted := func(action uint32) *qm2qm.RemoteReadDesc {
		return &qm2qm.RemoteReadDesc{RemoteQueue: remote.Queue, Queue: remote.QueueID, Action: action, RequestID: 1}
	}
	peeked, err := client.StartReceive2(ctx, &qm2qm.StartReceive2Request{
		RemoteReadDesc2: &qm2qm.RemoteReadDesc2{RemoteReadDesc: wanted(peekCurrent)}})
	check(err)
	say("RemoteQMStartReceive2", uint32(peeked.Return), hex.EncodeToString(peeked.RemoteReadDesc2.RemoteReadDesc.Buffer))
	taken, err := client.StartReceive(ctx, &qm2qm.StartReceiveRequest{RemoteReadDesc: wanted(0)})
	check(err)
	say("RemoteQMStartReceive", uint32(taken.Return), hex.EncodeToString(taken.RemoteReadDesc.Buffer))
	ended, err := client.EndReceive(ctx, &qm2qm.EndReceiveRequest{Context: taken.Context, Ack: 2})
	say("RemoteQMEndReceive", status(ended, err, func(one *qm2qm.EndReceiveResponse) int32 { return one.Return }))
	found, err := client.StartReceiveByLookupID(ctx, &qm2qm.StartReceiveByLookupIDRequest{LookupID: 0,
		RemoteReadDesc2: &qm2qm.RemoteReadDesc2{RemoteReadDesc: wanted(lookupPeekNext)}})
	check(err)
	say("RemoteQMStartReceiveByLookupId", uint32(found.Return),
		hex.EncodeToString(found.RemoteReadDesc2.RemoteReadDesc.Buffer))
	cancelled, err := client.CancelReceive(ctx,
		&qm2qm.CancelReceiveRequest{Queue: remote.Queue, QueueID: remote.QueueID, RequestID: 9})
	say("RemoteQMCancelReceive", status(cancelled, err, func(one *qm2qm.CancelReceiveResponse) int32 { return one.Return }))
	cursor, err := client.CloseCursor(ctx, &qm2qm.CloseCursorRequest{Queue: remote.Queue, Cursor: 77})
	say("RemoteQMCloseCursor", status(cursor, err, func(one *qm2qm.CloseCursorResponse) int32 { return one.Return }))
	purged, err := client.PurgeQueue(ctx, &qm2qm.PurgeQueueRequest{Queue: remote.Queue})
	say("RemoteQMPurgeQueue", status(purged, err, func(one *qm2qm.PurgeQueueResponse) int32 { return one.Return }))
	closed, err := client.CloseQueue(ctx, &qm2qm.CloseQueueRequest{Context: session.Context})
	say("RemoteQMCloseQueue", status(closed, err, func(one *qm2qm.CloseQueueResponse) int32 { return one.Return }))
}

// readStubs prints the stub data of RemoteRead's requests and answers.
func readStubs() {
	serial := &remoteread.QueueSerialize{UUID: guidAt20()}
	handle := (*remoteread.QueueNoSerialize)(serial)
	uow := &mqmq.TransactionUOW{Data: octets}
	const lookup = 0x0102030405060708
	values := []struct {
		name  string
		value ndr.Marshaler
	}{
		{"R_GetServerPort_Request", &remoteread.GetServerPortRequest{}},
		{"R_GetServerPort_Response", &remoteread.GetServerPortResponse{Return: 2103}},
		{"R_OpenQueue_Request", &remoteread.OpenQueueRequest{QueueFormat: format("OS:X\\q"), Access: 1, ShareMode: 1,
			ClientID: guid(), NonRoutingServer: 1, Major: 6, Minor: 1, BuildNumber: 7601, Workgroup: 1}},
		{"R_OpenQueue_Response", &remoteread.OpenQueueResponse{Context: serial}},
		{"R_CloseQueue_Request", &remoteread.CloseQueueRequest{Context: serial}},
		{"R_CloseQueue_Response", &remoteread.CloseQueueResponse{Context: serial, Return: 9}},
		{"R_CreateCursor_Request", &remoteread.CreateCursorRequest{Context: handle}},
		{"R_CreateCursor_Response", &remoteread.CreateCursorResponse{Cursor: 8, Return: 9}},
		{"R_CloseCursor_Request", &remoteread.CloseCursorRequest{Context: handle, Cursor: 8}},
		{"R_PurgeQueue_Request", &remoteread.PurgeQueueRequest{Context: handle}},
		{"R_StartReceive_Request", &remoteread.StartReceiveRequest{Context: handle, LookupID: lookup, Cursor: 2,
			Action: peekNext, Timeout: 3, RequestID: 4, MaxBodySize: 5, MaxCompoundMessageSize: 6}},
		{"R_CancelReceive_Request", &remoteread.CancelReceiveRequest{Context: handle, RequestID: 4}},
		{"R_EndReceive_Request", &remoteread.EndReceiveRequest{Context: handle, Ack: 2, RequestID: 4}},
		{"R_MoveMessage_Request", &remoteread.MoveMessageRequest{ContextFrom: handle, ContextTo: 7, LookupID: lookup,
			TransactionID: uow}},
		{"R_OpenQueueForMove_Request", &remoteread.OpenQueueForMoveRequest{QueueFormat: format("OS:X\\q"), Access: 1,
			ShareMode: 1, ClientID: guid(), NonRoutingServer: 1, Major: 6, Minor: 1, BuildNumber: 7601, Workgroup: 1}},
		{"R_OpenQueueForMove_Response", &remoteread.OpenQueueForMoveResponse{MoveContext: 7, Context: serial}},
		{"R_QMEnlistRemoteTransaction_Request", &remoteread.EnlistRemoteTransactionRequest{TransactionID: uow,
			PropagationTokenLength: 5, PropagationToken: []byte("token"), QueueFormat: format("OS:X\\q")}},
		{"R_StartTransactionalReceive_Request", &remoteread.StartTransactionalReceiveRequest{Context: handle,
			LookupID: lookup, Cursor: 2, Action: peekNext, Timeout: 3, RequestID: 4, MaxBodySize: 5,
			MaxCompoundMessageSize: 6, TransactionID: uow}},
		{"R_SetUserAcknowledgementClass_Request", &remoteread.SetUserAcknowledgementClassRequest{Context: handle,
			LookupID: lookup, Class: 0xC004}},
		{"R_EndTransactionalReceive_Request", &remoteread.EndTransactionalReceiveRequest{Context: handle, Ack: 2,
			RequestID: 4}},
	}
	for _, one := range values {
		writeBoth(one.name, one.value)
	}
}

// guidAt20 is the GUID whose octets are 0x20 to 0x2f.
func guidAt20() *dtyp.GUID {
	return &dtyp.GUID{Data1: 0x23222120, Data2: 0x2524, Data3: 0x2726,
		Data4: []byte{0x28, 0x29, 0x2A, 0x2B, 0x2C, 0x2D, 0x2E, 0x2F}}
}
