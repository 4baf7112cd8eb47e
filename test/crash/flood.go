package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

// The flood.
const (
	floodLimit  = 512 << 20 // memory of the broker
	floodQueues = 8
	floodHead   = 16 // of a body: publisher, number, size
	floodDrain  = 5 * time.Minute
)

// water is who publishes in a flood, and what.
type water struct {
	publishers  int
	least, most int // bytes of a body
}

var (
	manySmall = water{32, 1 << 10, 1 << 20}
	fewLarge  = water{100, 14 << 20, 16 << 20}
)

// size is a size between the two, small ones far more often.
func (w water) size(r *rand.Rand) int {
	return int(float64(w.least) * math.Pow(float64(w.most)/float64(w.least), r.Float64()*r.Float64()))
}

// runFlood has publishers send as fast as they can for o.n seconds to a broker with 512 MiB of memory, which may keep four times
// that in memory, and nobody to take the messages. It must live and stay within its memory, raise an alarm, and tell the publishers;
// when consumers come, everything that was confirmed must come, the alarm must end, and the publishers must go on.
func runFlood(o options) error {
	return flooded(o, manySmall, fmt.Sprintf("storage.tail_cache = %d\n", 4*floodLimit), func(alarmed bool, told int64) error {
		if !alarmed || told < int64(manySmall.publishers) {
			return errors.New("no alarm was raised, or not every publisher was told of it")
		}
		return nil
	})
}

// runOverflow does so with what is set by default, where all of it goes to the disk: nobody need be held back.
func runOverflow(o options) error { return flooded(o, manySmall, "", calm) }

// runTorrent does so with a hundred publishers of the largest messages, which come in piece by piece: more at a time than there is memory.
func runTorrent(o options) error { return flooded(o, fewLarge, "", calm) }

// calm is satisfied with or without an alarm.
func calm(bool, int64) error { return nil }

// flooded is a flood on a broker with settings.
func flooded(o options, w water, text string, verdict func(alarmed bool, told int64) error) error {
	if runtime.GOOS != "linux" {
		fmt.Println("flood: left out: the memory of a process is limited and measured on Linux only")
		return nil
	}
	b := o.broker
	group, remove := limited(b, &text)
	defer remove()
	if err := configured(b, text); err != nil {
		return err
	}
	if err := b.Start(); err != nil {
		return err
	}
	f := &flood{water: w, p: make([]floodPublisher, w.publishers), url: b.URL(), stop: make(chan struct{}), failed: make(chan struct{}), verdict: verdict}
	err := f.run(time.Duration(o.n)*time.Second, b)
	select {
	case <-b.Ended():
		return errors.Join(fmt.Errorf("the broker has ended\n%s", b.Tail()), err)
	default:
	}
	return errors.Join(err, usedMemory("flood", b, group), b.Kill())
}

// limited gives the broker a control group with little memory, nil if none can be made: then it is told in the settings what it has.
func limited(b *rig.Broker, text *string) (group *rig.MemoryGroup, remove func()) {
	group, err := rig.NewMemoryGroup(floodLimit)
	if err != nil {
		fmt.Printf("no control group can be made here (%v): the broker is told what it has, and watched\n", err)
		*text += fmt.Sprintf("total_memory_available_override_value = %d\n", floodLimit)
		return nil, func() {}
	}
	b.Through = group.Through()
	return group, func() {
		_ = b.Kill()
		_ = group.Remove()
	}
}

// configured has the broker start with settings.
func configured(b *rig.Broker, text string) error {
	config := filepath.Join(filepath.Dir(b.Log), "conf")
	b.Extra = append(b.Extra, "--config", config)
	return os.WriteFile(config, []byte(text), 0o644)
}

type flood struct {
	water
	url     string
	stop    chan struct{} // closed when nobody is to publish any more
	wait    sync.WaitGroup
	p       []floodPublisher
	blocked atomic.Int64 // publishers that are
	told    atomic.Int64 // times that one was told so
	verdict func(alarmed bool, told int64) error

	once   sync.Once
	failed chan struct{} // closed with the first error
	err    error
}

// floodPublisher is what one of them knows. The confirms are those of all it has sent, when it has ended.
type floodPublisher struct {
	sent   []bool // confirmed; the index is the message's number
	bytes  int64
	nacked int
}

// run floods, and drains.
func (f *flood) run(length time.Duration, b *rig.Broker) error {
	setup, err := amqp.Dial(f.url)
	if err != nil {
		return err
	}
	defer setup.Close()
	ch, err := setup.Channel()
	if err != nil {
		return err
	}
	for i := range floodQueues {
		args := amqp.Table{}
		if i%2 == 1 {
			args["x-queue-type"] = "quorum"
		}
		if _, err := ch.QueueDeclare(floodQueue(i), true, false, false, false, args); err != nil {
			return err
		}
	}
	began := time.Now()
	for p := range f.p {
		f.wait.Go(func() { f.note(f.publish(p)) })
	}
	alarmed, most := false, int64(0)
	for time.Since(began) < length {
		select {
		case <-f.failed:
			return f.err
		case <-b.Ended():
			return errors.New("the broker has ended under the flood")
		case <-time.After(100 * time.Millisecond):
		}
		most = max(most, f.blocked.Load())
		gauges, err := b.Gauges()
		if err != nil {
			return fmt.Errorf("metrics under the flood: %w", err)
		}
		alarmed = alarmed || gauges["rabbitmq_alarms_memory_used_watermark"] == 1
	}
	close(f.stop)
	fmt.Printf("flood: %v; an alarm was raised: %v; publishers were told so %d times, at most %d of %d at a time\n", time.Since(began).Round(time.Second), alarmed, f.told.Load(), most, f.publishers)
	if err := f.drain(); err != nil {
		return err
	}
	return f.verdict(alarmed, f.told.Load())
}

func floodQueue(i int) string { return fmt.Sprintf("flood.%d", i%floodQueues) }

// note keeps the first error.
func (f *flood) note(err error) {
	if err != nil {
		f.once.Do(func() { f.err = err; close(f.failed) })
	}
}

// publish is one publisher. Half of those of a classic queue send transient messages.
func (f *flood) publish(number int) error {
	me := &f.p[number]
	// While it writes and is not read, this client cannot see to its heartbeats, either; so they are rare.
	c, err := amqp.DialConfig(f.url, amqp.Config{Heartbeat: 10 * time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	word := c.NotifyBlocked(make(chan amqp.Blocking, 16))
	go func() {
		for w := range word {
			if w.Active {
				f.blocked.Add(1)
				f.told.Add(1)
			} else {
				f.blocked.Add(-1)
			}
		}
	}()
	why := c.NotifyClose(make(chan *amqp.Error, 1))
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 1<<16))
	acked := make(chan struct{})
	var got []bool
	nacked := 0
	total := make(chan int, 1)
	go func() {
		defer close(acked)
		for want := -1; want < 0 || len(got)+nacked < want; {
			select {
			case want = <-total:
			case a, open := <-confirms:
				switch {
				case !open:
					return
				case a.Ack:
					for uint64(len(got)) < a.DeliveryTag {
						got = append(got, false)
					}
					got[a.DeliveryTag-1] = true
				default:
					nacked++
				}
			}
		}
	}()
	r := rand.New(rand.NewPCG(uint64(number), 1))
	body := make([]byte, f.most)
	mode := amqp.Persistent
	if number/floodQueues%2 == 1 {
		mode = amqp.Transient
	}
	sent := 0
	for open := true; open; sent++ {
		size := f.size(r)
		binary.LittleEndian.PutUint32(body, uint32(number))
		binary.LittleEndian.PutUint32(body[4:], uint32(size))
		binary.LittleEndian.PutUint64(body[8:], uint64(sent))
		if err := ch.Publish("", floodQueue(number), false, false, amqp.Publishing{DeliveryMode: mode, Body: body[:size]}); err != nil {
			return fmt.Errorf("publisher %d: %w (%v)", number, err, <-why)
		}
		me.bytes += int64(size)
		select {
		case <-f.stop:
			open = false
		default:
		}
	}
	total <- sent
	select {
	case <-acked:
	case <-time.After(floodDrain):
		return fmt.Errorf("publisher %d: the confirms do not come", number)
	}
	me.sent, me.nacked = got, nacked
	if len(got)+nacked < sent {
		return fmt.Errorf("publisher %d: the connection ended before all was confirmed", number)
	}
	return nil
}

// drain takes everything.
func (f *flood) drain() error {
	began := time.Now()
	type arrival struct {
		publisher, number int
	}
	var mu sync.Mutex
	came := map[arrival]bool{}
	last := time.Now()
	for i := range floodQueues {
		c, err := amqp.Dial(f.url)
		if err != nil {
			return err
		}
		defer c.Close()
		ch, err := c.Channel()
		if err != nil {
			return err
		}
		if err := ch.Qos(100, 0, false); err != nil {
			return err
		}
		in, err := ch.Consume(floodQueue(i), "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		go func() {
			for d := range in {
				if len(d.Body) < floodHead || int(binary.LittleEndian.Uint32(d.Body[4:])) != len(d.Body) {
					f.note(fmt.Errorf("a body of %d bytes is not what was sent", len(d.Body)))
				}
				mu.Lock()
				came[arrival{int(binary.LittleEndian.Uint32(d.Body)), int(binary.LittleEndian.Uint64(d.Body[8:]))}] = true
				last = time.Now()
				mu.Unlock()
				if d.DeliveryTag%50 == 0 {
					if err := d.Ack(true); err != nil {
						return
					}
				}
			}
		}()
	}
	ended := make(chan struct{})
	go func() { f.wait.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-f.failed:
		return f.err
	case <-time.After(floodDrain):
		return errors.New("publishers were not let go on")
	}
	if f.err != nil {
		return f.err
	}
	lost := func() (confirmed, missing int) {
		mu.Lock()
		defer mu.Unlock()
		for p := range f.p {
			for n, is := range f.p[p].sent {
				if is {
					confirmed++
					if !came[arrival{p, n}] {
						missing++
					}
				}
			}
		}
		return confirmed, missing
	}
	for {
		confirmed, missing := lost()
		mu.Lock()
		silent := time.Since(last)
		mu.Unlock()
		if missing > 0 && silent < 20*time.Second && time.Since(began) < floodDrain {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		var bytes int64
		nacked := 0
		for p := range f.p {
			bytes += f.p[p].bytes
			nacked += f.p[p].nacked
		}
		fmt.Printf("flood: %d messages (%d MiB) confirmed, %d nacked, %d of the confirmed missing; drained in %v; %d publishers blocked at the end\n",
			confirmed, bytes>>20, nacked, missing, time.Since(began).Round(time.Second), f.blocked.Load())
		if missing > 0 {
			return fmt.Errorf("%d of %d confirmed messages were lost", missing, confirmed)
		}
		return f.err
	}
}

// usedMemory compares what was used with what there is.
func usedMemory(what string, b *rig.Broker, group *rig.MemoryGroup) error {
	resident, err := rig.PeakRSS(b.Pid())
	if err != nil {
		return err
	}
	fmt.Printf("%s: at most %d MiB were resident", what, resident>>20)
	if group != nil {
		all, err := group.Most()
		if err != nil {
			return err
		}
		fmt.Printf("; with files and sockets the group had %d MiB", all>>20)
	}
	fmt.Printf(" of %d MiB\n", floodLimit>>20)
	if resident >= floodLimit {
		return fmt.Errorf("%d MiB were resident, and there are %d", resident>>20, floodLimit>>20)
	}
	return nil
}
