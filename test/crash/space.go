package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/test/rig"
)

const (
	spaceBody     = 100
	spacePrefetch = 2000
	spaceLead     = 100_000 // messages published and not taken: few, so that the bound is narrow
	idleWait      = 60 * time.Second
	// ackWait is after how long an acknowledgement is on the disk for certain, and the
	// space it freed given back: it goes there with the next sync, a second later at
	// the latest.
	ackWait = 2 * time.Second
	besides = 1 << 20 // checkpoints and other small files beside the segments

	spareSegments = 6
)

// runSpace holds the first message while n pass, and watches the disk: at most
// twice what is live and six segments; six of the smallest a minute after all is gone.
// What is live is what the log counts, and no more than what was published and
// not acknowledged a moment ago.
func runSpace(o options) error {
	if err := o.broker.Start(); err != nil {
		return err
	}
	start, err := measure(o.broker)
	if err != nil {
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
	advance := make(chan struct{}, 1)
	producer.pace = func(published int64) {
		for published-taken.Load() > spaceLead {
			<-advance
		}
	}
	ended := make(chan error, 2)
	began := time.Now()
	go func() { ended <- producer.publish(int64(o.n), spaceBody) }()
	go func() {
		ended <- takeAll(taker, int64(o.n), func(n int64) {
			taken.Store(n)
			select {
			case advance <- struct{}{}:
			default:
			}
		})
	}()

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
		// A message takes its body and some hundred bytes about it.
		own := (producer.published.Load() - w.settled(taken.Load()) + spacePrefetch + 1) * (spaceBody + 150)
		if err := w.look(own); err != nil {
			return fmt.Errorf("after %d messages: %w", taken.Load(), err)
		}
		if o.verbose && time.Since(report) > 5*time.Second {
			report = time.Now()
			fmt.Printf("  %9d passed, disk %s\n", taken.Load(), w.last)
		}
	}
	seconds := time.Since(began).Seconds()
	fmt.Printf("space: 1 message held, %d of %d bytes passed in %.0f s (%.0f/s); the most on the disk: %s\n",
		o.n, spaceBody, seconds, float64(o.n)/seconds, w.most)
	if err := holder.ack(held.tag, false); err != nil {
		return err
	}
	drained := time.Now()
	for {
		u, err := measure(o.broker)
		if err != nil {
			return err
		}
		if u.total <= spareSegments*start.segment+besides {
			fmt.Printf("space: drained, %s after %.1f s\n", u, time.Since(drained).Seconds())
			break
		}
		if time.Since(drained) > idleWait {
			return fmt.Errorf("drained and idle for %v, and still %s: over six segments of %d MiB", idleWait, u, start.segment>>20)
		}
		time.Sleep(200 * time.Millisecond)
	}
	return o.broker.Stop()
}

// takeAll consumes and acks n messages in order, and tells how far it has come.
func takeAll(s *stream, n int64, taken func(int64)) error {
	for want := uint64(2); want < uint64(n)+2; want++ {
		d, err := s.next()
		if err != nil {
			return fmt.Errorf("instead of message %d: %w", want, err)
		}
		if d.number != want || d.redelivered {
			return fmt.Errorf("message %d (redelivered %v) instead of %d", d.number, d.redelivered, want)
		}
		if want%100 == 0 || want == uint64(n)+1 {
			if err := s.ack(d.tag, true); err != nil {
				return err
			}
			taken(int64(want) - 1)
		}
	}
	return nil
}

// footprint is what a data folder takes, and what the log says it needs.
type footprint struct {
	total, live, segment int64 // bytes; segment is the size of segments made now
	files                int
}

func (u footprint) String() string {
	return fmt.Sprintf("%d MiB in %d files for %d MiB (segments of %d MiB)", u.total>>20, u.files, u.live>>20, u.segment>>20)
}

func measure(b *rig.Broker) (u footprint, err error) {
	if u.total, u.files, err = rig.DiskUsed(b.Data); err != nil {
		return u, err
	}
	page, err := b.Gauges()
	if err != nil {
		return u, err
	}
	u.live, u.segment = int64(page["holdfast_log_live_bytes"]), int64(page["holdfast_log_segment_bytes"])
	if u.segment == 0 {
		return u, errors.New("the metrics page does not tell the size of segments")
	}
	return u, nil
}

// watch looks at the disk now and then and remembers the most.
type watch struct {
	broker *rig.Broker
	last   footprint
	most   footprint // by total
	looks  []look
	takes  []takes
}

// look is what was seen at a time, takes how many messages had been taken.
type (
	look struct {
		at   time.Time
		seen footprint
	}
	takes struct {
		at time.Time
		n  int64
	}
)

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

// look measures, and finds fault with what is over the bound for the most that was
// live a moment ago, and with a log that counts more as live than the client can
// know of.
func (w *watch) look(own int64) error {
	u, err := measure(w.broker)
	if err != nil {
		return err
	}
	w.last = u
	if u.total > w.most.total {
		w.most = u
	}
	now := time.Now()
	w.looks = append(w.looks, look{now, u})
	for len(w.looks) > 1 && now.Sub(w.looks[0].at) >= ackWait {
		w.looks = w.looks[1:]
	}
	var bound int64
	for _, l := range w.looks {
		bound = max(bound, 2*l.seen.live+spareSegments*l.seen.segment+besides)
	}
	if u.total > bound {
		return fmt.Errorf("%s on the disk: over the bound of %d MiB", u, bound>>20)
	}
	if u.live > own+besides {
		return fmt.Errorf("%s: %d MiB at most can be live", u, own>>20)
	}
	return nil
}
