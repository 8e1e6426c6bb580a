// Calls a node with the generated stubs of go-msrpc, which nobody of this project wrote. It prints a line of JSON for
// each answer:
//
//	client map ADDRESS PORT
//	client management ADDRESS PORT NDR|NDR64 USER PASSWORD COMMAND...
//	client read ADDRESS PORT NDR|NDR64 QUEUE
//	client read-older ADDRESS PORT NDR|NDR64 QUEUE
//	client stubs
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/oiweiwei/go-msrpc/dcerpc"
	"github.com/oiweiwei/go-msrpc/msrpc/mqmq"
	"github.com/oiweiwei/go-msrpc/ssp"
	"github.com/oiweiwei/go-msrpc/ssp/credential"
	"github.com/oiweiwei/go-msrpc/ssp/gssapi"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
}

func say(values ...any) {
	line, err := json.Marshal(values)
	check(err)
	fmt.Println(string(line))
}

// syntaxes are the transfer syntaxes that a bind offers.
func syntaxes(name string) []dcerpc.Option {
	switch name {
	case "NDR":
		return []dcerpc.Option{dcerpc.WithNDR20()}
	case "NDR64":
		return []dcerpc.Option{dcerpc.WithNDR64()}
	}
	return []dcerpc.Option{dcerpc.WithNDR20(), dcerpc.WithNDR64()}
}

// dial connects, and adds how to authenticate to the options of the bind: not at all without a user.
func dial(address, port, syntax, user, password string) (context.Context, dcerpc.Conn, []dcerpc.Option) {
	ctx := context.Background()
	options := syntaxes(syntax)
	if user == "" {
		options = append(options, dcerpc.WithInsecure())
	} else {
		ctx = gssapi.NewSecurityContext(ctx,
			gssapi.WithCredential(credential.NewFromPassword(user, password)),
			gssapi.WithMechanismFactory(ssp.NTLM))
		options = append(options, dcerpc.WithSeal())
	}
	conn, err := dcerpc.Dial(ctx, address, dcerpc.WithEndpoint("ncacn_ip_tcp:["+port+"]"))
	check(err)
	return ctx, conn, options
}

// format is the QUEUE_FORMAT of a direct name, without its "DIRECT=".
func format(name string) *mqmq.QueueFormat {
	if strings.Contains(name, ";") {
		return &mqmq.QueueFormat{
			QueueFormatType: 8, SuffixAndFlags: 5,
			QueueFormat: &mqmq.QueueFormat_QueueFormat{
				Value: &mqmq.QueueFormat_DirectSubqueueID{DirectSubqueueID: name}},
		}
	}
	return &mqmq.QueueFormat{
		QueueFormatType: 3,
		QueueFormat:     &mqmq.QueueFormat_QueueFormat{Value: &mqmq.QueueFormat_DirectID{DirectID: name}},
	}
}

func main() {
	arguments := os.Args[2:]
	switch os.Args[1] {
	case "map":
		lookUp(arguments[0], arguments[1])
	case "management":
		manage(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5:])
	case "read":
		read(arguments[0], arguments[1], arguments[2], arguments[3])
	case "read-older":
		readOlder(arguments[0], arguments[1], arguments[2], arguments[3])
	case "stubs":
		stubs()
		readStubs()
	}
}
