package session

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/internal/wire"
)

// smallCredit lets the messages and transactions that are not complete take 1 MiB on a node, and those of a connection 3 MiB.
func smallCredit(_ *config.Settings, _ *Options, r *rig) { r.nodeCredit, r.incomplete = 1<<20, 3<<20 }

// timeStands lets nobody be taken for slow, however slow the machine is.
func timeStands(_ *config.Settings, _ *Options, r *rig) {
	r.queueClock = clock.NewManual(time.Unix(1_700_000_000, 0))
}

const testFrame = 131072

// begun is the method and the header of a message, and so much of its body.
func begun(channel uint16, properties wire.Properties, size uint64, body int) []byte {
	b := wire.AppendMethod(nil, channel, &wire.BasicPublish{RoutingKey: []byte("nobody")})
	b = wire.AppendContentHeader(b, channel, properties, size)
	if body > 0 {
		b = wire.AppendBody(b, channel, make([]byte, body), testFrame)
	}
	return b
}

// countsIncomplete waits until so much counts as incomplete; what is allocated for it may be some more than what has come.
func (r *rig) countsIncomplete(t *testing.T, what string, least, most int64) {
	t.Helper()
	r.session().countsIncomplete(t, what, least, most)
}

func (c *conn) countsIncomplete(t *testing.T, what string, least, most int64) {
	t.Helper()
	until(t, what, func() bool { n := c.credit.Incomplete(); return n >= least && n <= most })
}

// largeHeaders are properties with a table of so many bytes.
func largeHeaders(n int) wire.Properties {
	return wire.NewProperties(wire.PropertySet{Headers: wire.NewTable(map[string]any{"x": string(make([]byte, n))})})
}

// R410, R580: what has come of a message counts as such until the message is complete, or will not be: its head, too.
func TestIncompleteMessagesCount(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	for n := uint16(2); n <= 12; n++ {
		c.method(n, &wire.ChannelOpen{})
		c.expect(wire.IDChannelOpenOk)
	}
	c.write(begun(1, nil, 150_000, 100_000))
	r.countsIncomplete(t, "two thirds have come", 100_000, 260_000)
	c.write(wire.AppendBody(nil, 1, make([]byte, 50_000), testFrame))
	r.countsIncomplete(t, "it is complete", 0, 0)
	for n := uint16(1); n <= 10; n++ {
		c.write(begun(n, nil, 4_000, 2_000))
	}
	r.countsIncomplete(t, "small ones", 10*2_000, 10*6_000)
	for n := uint16(1); n <= 10; n++ {
		c.write(wire.AppendBody(nil, n, make([]byte, 2_000), testFrame))
	}
	r.countsIncomplete(t, "they are complete", 0, 0)
	for n := uint16(1); n <= 10; n++ {
		c.write(begun(n, largeHeaders(100_000), 1, 0))
	}
	r.countsIncomplete(t, "heads", 10*100_000, 10*110_000)
	c.method(11, &wire.BasicPublish{RoutingKey: []byte("nobody")})
	conn := r.session() // which is soon gone
	one := conn.channel(1)
	c.method(12, &wire.ChannelOpen{}) // which makes no sense here
	c.expect(wire.IDConnectionClose)
	conn.countsIncomplete(t, "the connection is over", 0, 0)
	want(t, "held by a channel", one.content.builder.Held(), 0)
}

// R580: of a connection that has more messages coming in than it may hold, some channels are closed with 506, and the others go on.
func TestManyIncompleteMessages(t *testing.T) {
	r := newRig(t, smallCredit)
	c := r.client(t)
	const channels, size, piece = 20, 1 << 20, 64 << 10
	for n := uint16(1); n <= channels; n++ {
		if n > 1 {
			c.method(n, &wire.ChannelOpen{})
			c.expect(wire.IDChannelOpenOk)
		}
		c.method(n, &wire.ConfirmSelect{})
		c.expect(wire.IDConfirmSelectOk)
		c.write(begun(n, nil, size, 0))
	}
	for range size / piece {
		for n := uint16(1); n <= channels; n++ {
			c.write(wire.AppendBody(nil, n, make([]byte, piece), testFrame))
		}
	}
	acks, closes := 0, 0
	for acks+closes < channels {
		f, err := c.frame()
		if err != nil {
			t.Fatal(err)
		}
		switch id, args, _ := wire.SplitMethod(f.Payload); id {
		case wire.IDBasicAck:
			acks++
		case wire.IDChannelClose:
			var m wire.ChannelClose
			if err := m.Decode(args); err != nil || m.ReplyCode != 506 {
				t.Fatal(m, err)
			}
			closes++
		default:
			t.Fatal(describe(f))
		}
	}
	want(t, "some of either", []bool{acks >= 2, closes >= channels-3}, []bool{true, true})
	r.countsIncomplete(t, "in the end", 0, 0)
}

// R583: what transactions hold counts until they end.
func TestTransactionsCount(t *testing.T) {
	r := newRig(t, smallCredit)
	ends := map[string]func(ch *amqp.Channel) error{
		"commit": (*amqp.Channel).TxCommit, "rollback": (*amqp.Channel).TxRollback, "close": (*amqp.Channel).Close,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			client := r.dial(t)
			ch := transactional(t, client)
			for range 5 {
				publishTo(t, ch, "", 100_000)
			}
			r.countsIncomplete(t, "in the transaction", 5*100_000, 5*101_000)
			if err := end(ch); err != nil {
				t.Fatal(err)
			}
			r.countsIncomplete(t, "after it", 0, 0)
			client.Close()
			until(t, "gone", func() bool { return r.session() == nil })
		})
	}
}

func transactional(t *testing.T, client *amqp.Connection) *amqp.Channel {
	t.Helper()
	ch, err := client.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Tx(); err != nil {
		t.Fatal(err)
	}
	return ch
}

func publishTo(t *testing.T, ch *amqp.Channel, queue string, size int) {
	t.Helper()
	if err := ch.Publish("", queue, false, false, amqp.Publishing{Body: make([]byte, size)}); err != nil {
		t.Error(err)
	}
}

// R583: transactions of several connections that are more together than a node holds wait for each other, and all are committed.
func TestTransactionsInTurn(t *testing.T) {
	r := newRig(t, smallCredit, timeStands)
	const clients, messages, size = 8, 20, 100_000
	setup, err := r.dial(t).Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := setup.QueueDeclare("q", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range clients {
		client := r.dial(t)
		all.Go(func() {
			ch := transactional(t, client)
			for range messages {
				publishTo(t, ch, "q", size)
			}
			if err := ch.TxCommit(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	q, err := setup.QueueDeclarePassive("q", false, false, false, false, nil)
	want(t, "messages", fmt.Sprint(q.Messages, err), fmt.Sprint(clients*messages, nil))
}

// R583: a transaction of more than a connection may hold closes its channel with 506.
func TestTransactionThatIsTooLarge(t *testing.T) {
	r := newRig(t, smallCredit)
	client := r.dial(t)
	ch, other := transactional(t, client), transactional(t, client)
	why := ch.NotifyClose(make(chan *amqp.Error, 1))
	publishTo(t, other, "", 1000)
	for range 40 {
		ch.Publish("", "", false, false, amqp.Publishing{Body: make([]byte, 100_000)}) // fails, at some time
	}
	if e := <-why; e == nil || e.Code != 506 {
		t.Error(e)
	}
	r.countsIncomplete(t, "of the other", 1000, 2000)
	if err := other.TxCommit(); err != nil {
		t.Error(err)
	}
}

// R582: a connection that is to give up what is incomplete loses the channels that hold such, and no others.
func TestGivingUp(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	for n := uint16(2); n <= 3; n++ {
		c.method(n, &wire.ChannelOpen{})
		c.expect(wire.IDChannelOpenOk)
	}
	c.write(begun(2, nil, 1<<20, 100_000))
	c.method(3, &wire.TxSelect{})
	c.expect(wire.IDTxSelectOk)
	c.write(begun(3, nil, 1000, 1000))
	r.countsIncomplete(t, "begun", 256<<10+1256, 500_000)
	r.session().giveUp()
	for range 2 {
		if got := c.next(); len(got) < 3 || got[1:16] != " channel.close " {
			t.Error(got)
		}
	}
	r.countsIncomplete(t, "given up", 0, 0)
	c.method(1, &wire.QueueDeclare{Queue: "q"})
	c.expect(wire.IDQueueDeclareOk)

	c.write(begun(1, nil, 1<<20, 100_000))
	r.countsIncomplete(t, "begun", 100_000, 500_000)
	r.session().waiting.Store(true) // as if the client did not read what it is answered
	r.session().giveUp()
	c.expect(wire.IDConnectionClose)
}

// R584: what a channel fetches and does not acknowledge is bounded, as what is delivered to it.
func TestFetchedAndNotAcknowledged(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	c.method(1, &wire.QueueDeclare{Queue: "q"})
	c.expect(wire.IDQueueDeclareOk)
	get := func(noAck bool, want string) {
		t.Helper()
		c.method(1, &wire.BasicGet{Queue: "q", NoAck: noAck})
		if got := c.next(); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	f := &r.session().channel(1).flow
	set := func(n int) {
		f.mu.Lock()
		f.outstanding = n
		f.mu.Unlock()
	}
	set(maxUnacked - 1)
	get(false, "1 basic.get-empty")
	set(maxUnacked)
	get(true, "1 basic.get-empty")
	get(false, "1 channel.close reply-code=506")
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// R582: who stalls in the middle of much, while others wait, loses the channel, and the others go on.
func TestStalledAndGivenUp(t *testing.T) {
	r := newRig(t, smallCredit)
	stalled := r.client(t)
	stalled.write(begun(1, nil, 10<<20, 1<<20))
	stalled.write(wire.AppendBody(nil, 1, make([]byte, 7<<18), testFrame))
	r.countsIncomplete(t, "of the first", 10<<18, 12<<18)
	other := r.client(t)
	other.method(1, &wire.ConfirmSelect{})
	other.expect(wire.IDConfirmSelectOk)
	go func() {
		other.nc.Write(begun(1, nil, 2<<20, 1<<20))
		other.nc.Write(wire.AppendBody(nil, 1, make([]byte, 1<<20), testFrame))
	}()
	if got := stalled.next(); !strings.HasPrefix(got, "1 channel.close reply-code=506") {
		t.Error(got)
	}
	other.expect(wire.IDBasicAck)
}
