// Calls of grpc-go in place of grpcio's: the commands serve and call of grpc_calls.py, with the same
// methods and results.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// raw passes messages as octets.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (raw) Name() string { return "proto" }

type counts struct {
	lock  sync.Mutex
	calls map[string]int
}

func (c *counts) add(name string, messages int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.calls[name]++
	c.calls[name+" messages"] += messages
}

func (c *counts) handle(_ any, stream grpc.ServerStream) error {
	path, _ := grpc.MethodFromServerStream(stream)
	name := strings.TrimPrefix(path, "/squall.Test/")
	var request []byte
	receive := func() error { return stream.RecvMsg(&request) }
	send := func(octets []byte) error { return stream.SendMsg(&octets) }
	switch name {
	case "Up", "Chat", "Talk":
		messages := 0
		for {
			err := receive()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			messages++
			if name != "Up" {
				if err := send(request); err != nil {
					return err
				}
			}
		}
		c.add(name, messages)
		if name == "Up" {
			return send(make([]byte, 100))
		}
		return nil
	case "Sleep":
		<-stream.Context().Done()
		c.add(name, 0)
		return stream.Context().Err()
	case "Empty", "Unary", "Status", "Down", "Echo":
	default:
		return status.Error(codes.Unimplemented, path)
	}
	if err := receive(); err != nil {
		return err
	}
	if name != "Echo" {
		c.add(name, 1)
	}
	switch name {
	case "Unary":
		return send(make([]byte, 314_159))
	case "Status":
		return status.Error(codes.NotFound, "no such ☺")
	case "Down":
		for _, size := range []int{31_415, 9, 2_653, 58_979} {
			if err := send(make([]byte, size)); err != nil {
				return err
			}
		}
		return nil
	case "Echo":
		found, _ := metadata.FromIncomingContext(stream.Context())
		id, octets := found.Get("x-id"), found.Get("x-bin-bin")
		if len(id) != 1 || id[0] != "000007" || len(octets) != 1 || octets[0] != "\xab\xab\xab" {
			return status.Error(codes.InvalidArgument, fmt.Sprint(found))
		}
		c.add(name, 1)
		stream.SetHeader(metadata.Pairs("x-initial", "1"))
		stream.SetTrailer(metadata.Pairs("x-trailing", "2"))
	}
	return send(request)
}

func serve(address, certificate, key string) error {
	all := &counts{calls: map[string]int{}}
	pair, err := credentials.NewServerTLSFromFile(certificate, key)
	if err != nil {
		return err
	}
	for port, options := range map[int][]grpc.ServerOption{50051: nil, 50052: {grpc.Creds(pair)}} {
		listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, port))
		if err != nil {
			return err
		}
		options = append(options, grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(all.handle))
		go grpc.NewServer(options...).Serve(listener)
	}
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	all.lock.Lock()
	defer all.lock.Unlock()
	return json.NewEncoder(os.Stdout).Encode(all.calls)
}

var names = map[codes.Code]string{
	codes.Canceled:         "CANCELLED",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
	codes.NotFound:         "NOT_FOUND",
	codes.Unimplemented:    "UNIMPLEMENTED",
}

func name(err error) string { return names[status.Code(err)] }

const path = "/squall.Test/Call"

// stream sends messages and returns the lengths of the answers. With wait, each is awaited before
// the next message.
func stream(channel *grpc.ClientConn, messages int, wait bool) ([]int, error) {
	all := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	limited, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	call, err := channel.NewStream(limited, all, path)
	if err != nil {
		return nil, err
	}
	lengths, message := []int{}, []byte("a")
	for range messages {
		if err := call.SendMsg(&message); err != nil {
			return nil, err
		}
		if wait {
			var answer []byte
			if err := call.RecvMsg(&answer); err != nil {
				return nil, err
			}
			lengths = append(lengths, len(answer))
		}
	}
	if err := call.CloseSend(); err != nil {
		return nil, err
	}
	for {
		var answer []byte
		err := call.RecvMsg(&answer)
		if err == io.EOF {
			return lengths, nil
		}
		if err != nil {
			return nil, err
		}
		lengths = append(lengths, len(answer))
	}
}

func call(address string) error {
	found := map[string]any{}
	var channels []*grpc.ClientConn
	channel := func(port int) *grpc.ClientConn {
		channel, err := grpc.NewClient(
			fmt.Sprintf("passthrough:///%s:%d", address, port),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})),
		)
		if err != nil {
			panic(err)
		}
		channels = append(channels, channel)
		return channel
	}
	background := context.Background()
	unary := func(channel *grpc.ClientConn, context context.Context, path string, len int) ([]byte, error) {
		request, answer := make([]byte, len), []byte{}
		err := channel.Invoke(context, path, &request, &answer)
		return answer, err
	}
	length := func(what string, answer []byte, err error) {
		if found[what] = len(answer); err != nil {
			found[what] = err.Error()
		}
	}
	lengths := func(what string, answers []int, err error) {
		if found[what] = answers; err != nil {
			found[what] = err.Error()
		}
	}
	first := func(what string, answers []int, err error) {
		if lengths(what, answers, err); err == nil && len(answers) == 1 {
			found[what] = answers[0]
		}
	}

	one := channel(50051)
	answer, err := unary(one, background, path, 0)
	length("empty_unary", answer, err)
	answer, err = unary(one, background, path, 271_828)
	length("large_unary", answer, err)
	answers, err := stream(one, 20, false)
	first("client_streaming", answers, err)
	answers, err = stream(one, 0, false)
	first("empty_stream", answers, err)
	pairs := metadata.Pairs("x-id", "7", "x-bin-bin", "\x00\xff")
	answer, err = unary(one, metadata.NewOutgoingContext(background, pairs), path, 1)
	length("custom_metadata", answer, err)

	answers, err = stream(channel(50052), 1, false)
	lengths("server_streaming", answers, err)

	chat := channel(50053)
	answers, err = stream(chat, 5, true)
	lengths("ping_pong", answers, err)
	cancelled, cancel := context.WithCancel(background)
	begun, err := chat.NewStream(cancelled, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, path)
	if err == nil {
		message := []byte("a")
		if err = begun.SendMsg(&message); err == nil {
			err = begun.RecvMsg(&message)
		}
		cancel()
		if err == nil {
			err = begun.RecvMsg(&message)
		}
	}
	found["cancel_after_first_response"] = name(err)

	_, err = unary(channel(50054), background, path, 1)
	found["status_code_and_message"] = []string{name(err), status.Convert(err).Message()}

	// The first call waits for the connection, so a short time would not be enough for it.
	last := channel(50055)
	_, err = unary(last, background, "/squall.Test/Other", 1)
	found["unimplemented_method"] = name(err)
	limited, stop := context.WithTimeout(background, time.Second)
	defer stop()
	_, err = unary(last, limited, path, 1)
	found["timeout_on_sleeping_server"] = name(err)
	// At the end of the process, the kernel would reset those that have unread data, and the link may
	// lose that.
	for _, channel := range channels {
		channel.Close()
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func main() {
	err := fmt.Errorf("usage: serve ADDRESS CERTIFICATE KEY, or call ADDRESS")
	if len(os.Args) == 5 && os.Args[1] == "serve" {
		err = serve(os.Args[2], os.Args[3], os.Args[4])
	} else if len(os.Args) == 3 && os.Args[1] == "call" {
		err = call(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
