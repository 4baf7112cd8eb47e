package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/test/rig"
)

const (
	spaceBody     = 100
	spacePrefetch = 2000
	idleWait      = 60 * time.Second
	// ackWait is after how long an acknowledgement is on the disk for certain: it goes
	// there with the next sync, a second later at the latest. Until then its message is live.
	ackWait = 2 * time.Second
	besides = 1 << 20 // checkpoints and other small files beside the segments
)

// runSpace holds the first message while n pass, and watches the disk: at most
// twice what is live and six segments; six segments a minute after all is gone.
func runSpace(o options) error {
	if err := o.broker.Start(); err != nil {
		return err
	}
	holder, err := dialStream(o.broker.URL(), "space")
	if err != nil {
		return err
	}
	defer holder.conn.Close()
	producer, err := dialStream(o.broker.URL(), "space")
	if err != nil {
		return err
	}
	defer producer.conn.Close()
	if err := producer.publish(1, spaceBody); err != nil {
		return err
	}
	if err := holder.consume(1); err != nil {
		return err
	}
	held, err := holder.next()
	if err != nil || held.number != 1 {
		return fmt.Errorf("holding the first message: got %d, %v", held.number, err)
	}
	taker, err := dialStream(o.broker.URL(), "space")
	if err != nil {
		return err
	}
	defer taker.conn.Close()
	if err := taker.consume(spacePrefetch); err != nil {
		return err
	}
	var taken atomic.Int64
	ended := make(chan error, 2)
	began := time.Now()
	go func() { ended <- producer.publish(int64(o.n), spaceBody) }()
	go func() { ended <- takeAll(taker, int64(o.n), &taken) }()

	w := watch{broker: o.broker}
	report := time.Now()
	for left := 2; left > 0; {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
			left--
		case <-time.After(200 * time.Millisecond):
		}
		// What was published and not taken a while ago is live, and the held one; a
		// message takes its body and some hundred bytes about it.
		live := (producer.published.Load() - w.settled(taken.Load()) + spacePrefetch + 1) * (spaceBody + 150)
		if err := w.look(live); err != nil {
			return fmt.Errorf("after %d messages: %w", taken.Load(), err)
		}
		if o.verbose && time.Since(report) > 5*time.Second {
			report = time.Now()
			fmt.Printf("  %9d passed, disk %s\n", taken.Load(), w.last)
		}
	}
	seconds := time.Since(began).Seconds()
	fmt.Printf("space: 1 message held, %d of %d bytes passed in %.0f s (%.0f/s); at most %s on the disk\n",
		o.n, spaceBody, seconds, float64(o.n)/seconds, w.most)
	if err := holder.ack(held.tag, false); err != nil {
		return err
	}
	drained := time.Now()
	for {
		usage, err := measure(o.broker.Data)
		if err != nil {
			return err
		}
		if usage.total <= 6*usage.segment+besides {
			fmt.Printf("space: drained, %s on the disk after %.1f s\n", usage, time.Since(drained).Seconds())
			break
		}
		if time.Since(drained) > idleWait {
			return fmt.Errorf("drained and idle for %v, and still %s on the disk: over six segments", idleWait, usage)
		}
		time.Sleep(200 * time.Millisecond)
	}
	return o.broker.Stop()
}

// takeAll consumes and acks n messages in order.
func takeAll(s *stream, n int64, taken *atomic.Int64) error {
	for want := uint64(2); want < uint64(n)+2; want++ {
		d, err := s.next()
		if err != nil {
			return fmt.Errorf("after %d messages: %w", taken.Load(), err)
		}
		if d.number != want || d.redelivered {
			return fmt.Errorf("message %d (redelivered %v) instead of %d", d.number, d.redelivered, want)
		}
		if want%100 == 0 || want == uint64(n)+1 {
			if err := s.ack(d.tag, true); err != nil {
				return err
			}
			taken.Store(int64(want) - 1)
		}
	}
	return nil
}

// disk is what a data folder takes.
type disk struct {
	total, segment int64 // bytes; segment is the largest file
	files          int
}

func (u disk) String() string {
	return fmt.Sprintf("%d MiB in %d files (the largest %d MiB)", u.total>>20, u.files, u.segment>>20)
}

func measure(dir string) (disk, error) {
	total, files, err := rig.DiskUsed(dir)
	if err != nil {
		return disk{}, err
	}
	segment, err := rig.LargestFile(dir)
	return disk{total: total, segment: segment, files: files}, err
}

// watch looks at the disk now and then and remembers the most.
type watch struct {
	broker     *rig.Broker
	last, most disk
	takes      []takes // in the last ackWait, and the one before
}

// takes is how many messages had been taken at a time.
type takes struct {
	at time.Time
	n  int64
}

// settled notes how many messages are taken, and returns how many of them are off the disk for certain.
func (w *watch) settled(taken int64) int64 {
	now := time.Now()
	w.takes = append(w.takes, takes{now, taken})
	for len(w.takes) > 1 && now.Sub(w.takes[1].at) >= ackWait {
		w.takes = w.takes[1:]
	}
	if now.Sub(w.takes[0].at) < ackWait {
		return 0
	}
	return w.takes[0].n
}

// look measures, and finds fault with what is over the bound.
func (w *watch) look(live int64) error {
	u, err := measure(w.broker.Data)
	if err != nil {
		return err
	}
	w.last = u
	if u.total > w.most.total {
		w.most = u
	}
	if bound := 2*live + 6*u.segment + besides; u.total > bound {
		return fmt.Errorf("%s on the disk, and only %d KiB live: over the bound of %d MiB", u, live>>10, bound>>20)
	}
	return nil
}
