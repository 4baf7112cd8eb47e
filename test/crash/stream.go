package main

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"holdfast/test/raw"
)

// stream pushes messages through one queue as fast as one connection can: it
// counts and does not look inside.
type stream struct {
	conn      *raw.Conn
	queue     string
	published atomic.Int64
	confirmed atomic.Int64
	pace      func(published int64) // called now and then by publish, may wait
}

// dialStream opens a connection with channel 1 open and a durable queue.
func dialStream(url, queue string) (*stream, error) {
	c, err := raw.Dial(url)
	if err != nil {
		return nil, err
	}
	s := &stream{conn: c, queue: queue}
	if err = c.Handshake("/"); err == nil {
		err = c.OpenChannel(1)
	}
	if err == nil {
		_, err = c.Call(1, raw.QueueDeclare, raw.QueueDeclareOk, uint16(0), queue, raw.Bits{false, true, false, false, false}, raw.Table{})
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

// publish sends n persistent messages of a size and waits for all confirms, with
// a bounded number in flight. The first bytes of a body are its number.
func (s *stream) publish(n int64, size int) error {
	const window, batch = 20_000, 200
	if _, err := s.conn.Call(1, raw.ConfirmSelect, raw.ConfirmSelectOk, raw.Bits{false}); err != nil {
		return err
	}
	first := s.published.Load()
	confirmed := make(chan error, 1)
	room := make(chan struct{}, 1)
	done := s.confirmed.Load() + n
	go func() {
		for s.confirmed.Load() < done {
			a, err := s.conn.Expect(1, raw.BasicAck)
			if err != nil {
				confirmed <- err
				return
			}
			tag, multiple := int64(a.U64()), a.U8()&1 == 1
			if multiple {
				s.confirmed.Store(max(s.confirmed.Load(), done-n+tag))
			} else {
				s.confirmed.Add(1)
			}
			select {
			case room <- struct{}{}:
			default:
			}
		}
		confirmed <- nil
	}()
	method := raw.Method(raw.BasicPublish, uint16(0), "", s.queue, raw.Bits{false, false})
	header := raw.Header(uint64(size), []byte{0x10, 0, 2})
	body := make([]byte, size)
	var out []byte
	for sent := int64(0); sent < n; {
		for first+sent-s.confirmed.Load() > window {
			select {
			case <-room:
			case err := <-confirmed:
				return fmt.Errorf("confirms ended with %v", err)
			}
		}
		if s.pace != nil {
			s.pace(first + sent)
		}
		out = out[:0]
		for range min(batch, n-sent) {
			sent++
			binary.BigEndian.PutUint64(body, uint64(first+sent))
			out = raw.AppendFrame(out, raw.FrameMethod, 1, method)
			out = raw.AppendFrame(out, raw.FrameHeader, 1, header)
			out = raw.AppendFrame(out, raw.FrameBody, 1, body)
		}
		if _, err := s.conn.Write(out); err != nil {
			return err
		}
		s.published.Store(first + sent)
	}
	return <-confirmed
}

// delivery is what a stream sees of a message.
type delivery struct {
	tag         uint64
	redelivered bool
	number      uint64
}

// next reads one delivery.
func (s *stream) next() (delivery, error) {
	a, err := s.conn.Expect(1, raw.BasicDeliver)
	if err != nil {
		return delivery{}, err
	}
	a.Str()
	d := delivery{tag: a.U64(), redelivered: a.U8()&1 == 1}
	h, err := s.conn.ReadFrame()
	if err != nil {
		return d, err
	}
	for left := binary.BigEndian.Uint64(h.Payload[4:]); left > 0; {
		b, err := s.conn.ReadFrame()
		if err != nil {
			return d, err
		}
		if d.number == 0 && len(b.Payload) >= 8 {
			d.number = binary.BigEndian.Uint64(b.Payload)
		}
		left -= uint64(len(b.Payload))
	}
	return d, nil
}

// consume subscribes with a prefetch; 0 is unlimited.
func (s *stream) consume(prefetch uint16) error {
	if _, err := s.conn.Call(1, raw.BasicQos, raw.BasicQosOk, uint32(0), prefetch, raw.Bits{false}); err != nil {
		return err
	}
	_, err := s.conn.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), s.queue, "", raw.Bits{false, false, false, false}, raw.Table{})
	return err
}

// ack settles one delivery, or all up to it.
func (s *stream) ack(tag uint64, multiple bool) error {
	return s.conn.Send(1, raw.BasicAck, tag, raw.Bits{multiple})
}
