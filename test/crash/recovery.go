package main

import (
	"fmt"
	"time"
)

const (
	recoveryBody  = 200
	recoveryLimit = time.Second
)

// runRecovery puts n messages on the disk, kills the broker and times its
// return: the first answer, and the first message. Then it takes them all.
func runRecovery(o options) error {
	if err := o.broker.Start(); err != nil {
		return err
	}
	s, err := dialStream(o.broker.URL(), "recovery")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.publish(int64(o.n), recoveryBody); err != nil {
		return err
	}
	s.conn.Close()
	seconds := time.Since(began).Seconds()
	before, err := measure(o.broker)
	if err != nil {
		return err
	}
	fmt.Printf("recovery: %d messages of %d bytes confirmed in %.1f s (%.0f/s), %s\n", o.n, recoveryBody, seconds, float64(o.n)/seconds, before)
	if err := o.broker.Kill(); err != nil {
		return err
	}

	began = time.Now()
	if err := o.broker.Start(); err != nil {
		return err
	}
	answered := time.Since(began)
	if s, err = dialStream(o.broker.URL(), "recovery"); err != nil {
		return err
	}
	defer s.conn.Close()
	if err := s.consume(2000); err != nil {
		return err
	}
	var first time.Duration
	for want := uint64(1); want <= uint64(o.n); want++ {
		d, err := s.next()
		if err != nil {
			return fmt.Errorf("after %d messages: %w", want-1, err)
		}
		if first == 0 {
			first = time.Since(began)
		}
		if d.number != want {
			return fmt.Errorf("message %d instead of %d", d.number, want)
		}
		if want%100 == 0 || want == uint64(o.n) {
			if err := s.ack(d.tag, true); err != nil {
				return err
			}
		}
	}
	fmt.Printf("recovery: answers %.2f s after the start, first message after %.2f s, all %d there, taken after %.1f s\n",
		answered.Seconds(), first.Seconds(), o.n, time.Since(began).Seconds())
	if first > recoveryLimit {
		return fmt.Errorf("the first message came after %.2f s; the limit is %v", first.Seconds(), recoveryLimit)
	}
	return o.broker.Stop()
}
