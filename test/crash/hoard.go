package main

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
	"holdfast/test/rig"
)

// hoarders are clients that begin messages and transactions, and never end them.
type hoarders struct {
	connections, channels int
	size                  uint64 // of the bodies that they announce
	header                int    // bytes of a table in the headers
	frame                 int    // bytes of a body frame; 0: nothing follows the header
	whole                 bool   // all bodies are complete, in transactions that are not
}

var hoards = []hoarders{
	{connections: 1, channels: 500, size: 16 << 20, frame: 128 << 10},
	{connections: 200, channels: 4, size: 16 << 20, frame: 128 << 10},
	{connections: 4, channels: 2047, size: 1 << 20, header: 120 << 10},
	{connections: 2, channels: 2047, size: 200 << 10, frame: 64 << 10},
	{connections: 200, channels: 2, size: 128 << 10, frame: 128 << 10, whole: true},
}

// hoardMessage is the largest message that others publish meanwhile.
const hoardMessage = 4 << 20

// runHoard has wild clients of each kind fill a broker with 512 MiB of memory, for o.n seconds each. It must live and stay within its memory, and what
// an ordinary client publishes meanwhile must be confirmed.
func runHoard(o options) error {
	if runtime.GOOS != "linux" {
		fmt.Println("hoard: left out: the memory of a process is limited and measured on Linux only")
		return nil
	}
	text := ""
	group, remove := limited(o.broker, &text)
	defer remove()
	if err := configured(o.broker, text); err != nil {
		return err
	}
	for _, h := range hoards {
		if err := o.broker.Start(); err != nil {
			return err
		}
		err := h.run(time.Duration(o.n)*time.Second, o.broker)
		select {
		case <-o.broker.Ended():
			return errors.Join(fmt.Errorf("the broker has ended\n%s", o.broker.Tail()), err)
		default:
		}
		if err := errors.Join(err, usedMemory("hoard", o.broker, group), o.broker.Kill()); err != nil {
			return err
		}
	}
	return nil
}

// run hoards for a time, and publishes.
func (h hoarders) run(length time.Duration, b *rig.Broker) error {
	stop := make(chan struct{})
	var all sync.WaitGroup
	var sent, closed atomic.Int64
	defer func() { close(stop); all.Wait() }()
	for range h.connections {
		c, err := raw.Dial(b.URL())
		if err == nil {
			err = c.Handshake("/")
		}
		if err != nil {
			return err
		}
		all.Go(func() { <-stop; c.Close() })
		all.Go(func() { h.listen(c, &closed) })
		all.Go(func() { h.hoard(c, stop, &sent) })
	}
	published, err := ordinary(b.URL(), length)
	fmt.Printf("hoard: %d connections of %d channels with unfinished bodies of %d KiB, headers of %d KiB, in transactions %v: %d MiB sent, %d channels or connections closed; %d messages of others confirmed, within %v at most\n",
		h.connections, h.channels, h.size>>10, h.header>>10, h.whole, sent.Load()>>20, closed.Load(), published.messages, published.longest.Round(time.Millisecond))
	return err
}

// hoard sends what it can, until the broker has had enough or stop is closed.
func (h hoarders) hoard(c *raw.Conn, stop chan struct{}, sent *atomic.Int64) {
	properties := raw.NoProperties
	if h.header > 0 {
		properties = raw.HeadersOnly(raw.Fields(raw.Field("x", 'S', raw.Long(make([]byte, h.header)))))
	}
	write := func(b []byte) bool {
		n, err := c.Conn.Write(b)
		sent.Add(int64(n))
		return err == nil
	}
	begin := func(n uint16) []byte {
		b := raw.AppendFrame(nil, raw.FrameMethod, n, raw.Method(raw.BasicPublish, uint16(0), "", "hoard", raw.Bits{false, false}))
		return raw.AppendFrame(b, raw.FrameHeader, n, raw.Header(h.size, properties))
	}
	for n := uint16(1); n <= uint16(h.channels); n++ {
		b := raw.AppendFrame(nil, raw.FrameMethod, n, raw.Method(raw.ChannelOpen, ""))
		if h.whole {
			b = raw.AppendFrame(b, raw.FrameMethod, n, raw.Method(raw.TxSelect))
		} else {
			b = append(b, begin(n)...)
		}
		if !write(b) {
			return
		}
	}
	piece := make([]byte, min(h.frame, 128<<10-8))
	for left := int64(h.size); h.frame > 0; left -= int64(len(piece)) {
		if h.whole {
			left = int64(h.size)
		}
		if left <= int64(len(piece)) {
			break
		}
		for n := uint16(1); n <= uint16(h.channels); n++ {
			var b []byte
			if h.whole {
				b = begin(n)
				for rest := int(h.size); rest > 0; rest -= len(piece) {
					b = raw.AppendFrame(b, raw.FrameBody, n, piece[:min(rest, len(piece))])
				}
			} else {
				b = raw.AppendFrame(b, raw.FrameBody, n, piece)
			}
			if !write(b) {
				return
			}
		}
	}
	for { // now next to nothing
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
			if h.frame > 0 && !write(raw.AppendFrame(nil, raw.FrameBody, uint16(h.channels), []byte{0})) {
				return
			}
		}
	}
}

// listen reads what the broker says, and answers nothing. When no channel is left the client goes.
func (h hoarders) listen(c *raw.Conn, closed *atomic.Int64) {
	for left := h.channels; left > 0; {
		f, err := c.ReadAnyWithin(time.Hour)
		if err != nil {
			return
		}
		if f.Is(raw.ChannelClose) || f.Is(raw.ConnectionClose) {
			closed.Add(1)
			left--
		}
	}
	c.Close()
}

// confirmed is what became of what an ordinary client published.
type confirmed struct {
	messages int
	longest  time.Duration
}

// ordinary publishes messages small and large, one after the other, for a time.
func ordinary(url string, length time.Duration) (done confirmed, err error) {
	c, err := amqp.DialConfig(url, amqp.Config{Heartbeat: 10 * time.Minute, Dial: func(network, addr string) (net.Conn, error) {
		return net.DialTimeout(network, addr, time.Minute)
	}})
	if err != nil {
		return done, err
	}
	defer c.Close()
	ch, err := c.Channel()
	if err != nil {
		return done, err
	}
	if _, err := ch.QueueDeclare("ordinary", true, false, false, false, amqp.Table{"x-max-length": 10}); err != nil {
		return done, err
	}
	if err := ch.Confirm(false); err != nil {
		return done, err
	}
	body := make([]byte, hoardMessage)
	for began := time.Now(); time.Since(began) < length; done.messages++ {
		size := 1 << 10
		if done.messages%4 == 3 {
			size = len(body)
		}
		one := time.Now()
		d, err := ch.PublishWithDeferredConfirm("", "ordinary", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body[:size]})
		if err != nil {
			return done, fmt.Errorf("message %d of %d bytes: %w", done.messages, size, err)
		}
		select {
		case <-d.Done():
			if !d.Acked() {
				return done, fmt.Errorf("message %d of %d bytes was refused", done.messages, size)
			}
		case <-time.After(3 * time.Minute):
			return done, fmt.Errorf("message %d of %d bytes is not confirmed", done.messages, size)
		}
		done.longest = max(done.longest, time.Since(one))
	}
	return done, nil
}
