package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// Probe is Links.Probe.
func (t *TCP) Probe(ctx context.Context, addr string) (Hello, error) {
	conn, its, err := t.dial(ctx, addr, purposeProbe, 0)
	if err != nil {
		return its, fmt.Errorf("%s: %w", addr, err)
	}
	hangUp(conn)
	return its, nil
}

// Call is Links.Call.
func (t *TCP) Call(ctx context.Context, addr string, msg []byte) ([]byte, error) {
	answer, err := t.call(ctx, addr, msg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return answer, nil
}

func (t *TCP) call(ctx context.Context, addr string, msg []byte) (answer []byte, err error) {
	if len(msg) > t.o.MaxMessage {
		return nil, fmt.Errorf("a request of %d bytes, at most %d are allowed", len(msg), t.o.MaxMessage)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, ErrNoAnswer)
	defer cancel()
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause // more than that the connection is closed
		}
	}()
	conn, _, err := t.dial(ctx, addr, purposeCall, 0)
	if err != nil {
		return nil, err
	}
	defer hangUp(conn)
	stop := context.AfterFunc(ctx, func() { hangUp(conn) })
	defer stop()
	if err := writeFrame(conn, msg); err != nil {
		return nil, err
	}
	return readFrame(conn, t.o.MaxMessage)
}

// answer serves one call.
func (t *TCP) answer(conn, raw net.Conn, from Hello) {
	defer raw.Close()
	defer func() { <-t.calls }()
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.guests[raw] = struct{}{} // Close does not wait for the caller
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.guests, raw)
		t.mu.Unlock()
	}()
	err := conn.SetReadDeadline(time.Now().Add(callTime))
	var msg []byte
	if err == nil {
		msg, err = readFrame(conn, t.o.MaxMessage)
	}
	if err == nil {
		answer := t.o.Handler.Call(from, msg)
		if len(answer) > t.o.MaxMessage {
			err = errors.New("the answer is too long")
		} else {
			err = writeFrame(conn, answer)
		}
	}
	if err != nil {
		t.complaints.refused("call "+from.Addr, "a request of another node could not be answered", "node", from.Name, "id", from.Node, "reason", err)
	}
}

func writeFrame(conn net.Conn, payload []byte) error {
	_, err := conn.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(payload))), payload...))
	return err
}

func readFrame(conn net.Conn, max int) ([]byte, error) {
	f := newFrames(conn, max)
	for {
		payload, own, ok, err := f.next()
		if err != nil {
			return nil, err
		}
		if ok && !own {
			return payload, nil
		}
		if ok {
			continue
		}
		if err := f.fill(); err != nil {
			return nil, cutOff(err)
		}
	}
}
