package session

import (
	"net"
	"testing"
	"time"

	"holdfast/internal/wire"
)

// FuzzSession sends bytes to an open connection with channel 1. Whatever they
// are, the session ends when the client goes, and nothing of it is left.
func FuzzSession(f *testing.F) {
	for _, text := range []string{
		"1 queue.declare queue=q\n1 publish key=q body=x\n1 basic.get queue=q\n1 basic.ack delivery-tag=1",
		"1 confirm.select\n1 publish key=q mandatory body=x\n1 basic.consume queue=q\n1 basic.cancel consumer-tag=c",
		"1 tx.select\n1 publish key=q body=x\n1 tx.commit\n1 tx.rollback\n1 basic.recover requeue",
		"1 basic.qos prefetch-count=1 global\n1 basic.consume queue=q consumer-tag=c\n1 channel.close\n1 channel.close-ok",
		"2 channel.open\n2 exchange.declare exchange=x type=topic\n2 queue.bind queue=q exchange=x routing-key=#\n2 publish exchange=x key=a.b body=y",
		"1 basic.nack delivery-tag=0 multiple requeue\n1 basic.publish routing-key=q\n1 header size=9\n1 body abc",
		"1 queue.delete queue=q\n1 exchange.delete exchange=x\n0 connection.close reply-code=200",
		"heartbeat\n1 queue.declare passive\n1 basic.reject delivery-tag=5",
	} {
		f.Add(encodeLines(f, text))
	}
	// A channel error with the client's channel.close right behind it.
	f.Add(encodeLines(f, "1 basic.consume queue=missing\n1 channel.close reply-code=200\n1 channel.close-ok"))
	f.Add([]byte("\x01\x00\x01\x00\x00\x00\x08\x00\x3c\x00"))
	r := newRig(f)
	r.propose(addUser("ann"))
	r.propose(allowAll("ann"))
	f.Fuzz(func(t *testing.T, input []byte) {
		client, server := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.server.ServeConn(server)
		}()
		c := &frameClient{t: t, nc: client}
		if got := c.tune(map[string]string{"user": "ann"}); got != "0 connection.open-ok" {
			t.Fatal(got)
		}
		c.method(1, &wire.ChannelOpen{})
		c.expect(wire.IDChannelOpenOk)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			for {
				f, err := c.frame()
				if err != nil {
					return
				}
				switch id, _, _ := wire.SplitMethod(f.Payload); {
				case f.Channel == 0 && (id == wire.IDConnectionClose || id == wire.IDConnectionCloseOk):
					return
				}
			}
		}()
		client.SetWriteDeadline(time.Now().Add(patience))
		input = wire.AppendMethod(input, 0, &wire.ConnectionClose{ReplyCode: 200})
		client.Write(input)
		select { // an input that ends within a frame is not answered
		case <-answered:
		case <-time.After(20 * time.Millisecond):
		}
		client.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("the session does not end")
		}
		if n := r.broker.ListConnections(); len(n) != 0 {
			t.Fatalf("connections left: %v", n)
		}
	})
}
