package main

import (
	"fmt"
	"time"

	"holdfast/test/raw"
)

// churnLive is how many bytes of the log a single message and what is done to it may
// need: entries above the queue's snapshot, of which there is a new one when they are
// a mebibyte or in the way.
const churnLive = 8 << 20

// runChurn requeues one message n times, and attaches and detaches consumers a
// tenth as often: work that leaves nothing behind must not fill the disk.
func runChurn(o options) error {
	if err := o.broker.Start(); err != nil {
		return err
	}
	s, err := dialStream(o.broker.URL(), "churn")
	if err != nil {
		return err
	}
	defer s.conn.Close()
	if err := s.publish(1, spaceBody); err != nil {
		return err
	}
	w := watch{broker: o.broker}
	began := time.Now()
	if err := s.consume(1); err != nil {
		return err
	}
	for i := range o.n {
		d, err := s.next()
		if err != nil {
			return fmt.Errorf("after %d requeues: %w", i, err)
		}
		if d.redelivered != (i > 0) {
			return fmt.Errorf("delivery %d: redelivered is %v", i, d.redelivered)
		}
		if err := s.conn.Send(1, raw.BasicNack, d.tag, raw.Bits{false, true}); err != nil {
			return err
		}
		if i%10_000 == 0 {
			if err := w.look(churnLive); err != nil {
				return fmt.Errorf("after %d requeues: %w", i, err)
			}
		}
	}
	requeued := time.Since(began)

	other, err := dialStream(o.broker.URL(), "churn")
	if err != nil {
		return err
	}
	defer other.conn.Close()
	began = time.Now()
	attaches := o.n / 10
	for i := range attaches {
		if _, err := other.conn.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), "churn", "c", raw.Bits{false, true, false, false}, raw.Table{}); err != nil {
			return fmt.Errorf("after %d attaches: %w", i, err)
		}
		if err := other.conn.Send(1, raw.BasicCancel, "c", raw.Bits{false}); err != nil {
			return err
		}
		for {
			f, err := other.conn.ReadFrame()
			if err != nil {
				return fmt.Errorf("after %d attaches: %w", i, err)
			}
			if f.Is(raw.BasicCancelOk) {
				break
			}
		}
		if i%1000 == 0 {
			if err := w.look(churnLive); err != nil {
				return fmt.Errorf("after %d attaches: %w", i, err)
			}
		}
	}
	fmt.Printf("churn: %d requeues in %.0f s, %d attaches and detaches in %.0f s; the most on the disk: %s\n",
		o.n, requeued.Seconds(), attaches, time.Since(began).Seconds(), w.most)
	return o.broker.Stop()
}
