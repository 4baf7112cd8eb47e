package queuehost

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// real is a node's queues on a real log.
type real struct {
	log  *seglog.Log
	node *replica.Node
	reg  *Registry
}

const realQueues = 3

func openReal(t testing.TB, fs vfs.FS, dir string, queues int, tail int64) *real {
	t.Helper()
	r := &real{}
	quiet := slog.New(slog.DiscardHandler)
	if err := fs.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	var node atomic.Pointer[replica.Node]
	o := seglog.Options{
		SegmentMin: 64 << 10, SegmentMax: 256 << 10, NoSyncDelay: 5 * time.Millisecond, CheckpointBytes: 1 << 20,
	}
	if _, mem := fs.(*vfs.Mem); !mem {
		o = seglog.Options{}
	}
	o.Logger = quiet
	o.Events = seglog.Events{
		NeedSnapshot: func(ids []seglog.GroupID) {
			if n := node.Load(); n != nil {
				n.NeedSnapshots(ids)
			}
		},
	}
	log, err := seglog.Open(fs, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if hits := log.Quarantined(); len(hits) > 0 {
		t.Fatalf("quarantined: %v", hits)
	}
	r.log = log
	var snapshots uint64
	if _, mem := fs.(*vfs.Mem); mem {
		snapshots = 50
	}
	// The machine may stand still for as long as it likes.
	r.node = replica.Open(replica.Options{Log: log, Logger: quiet, SnapshotEntries: snapshots, Overdue: time.Hour, CloseWait: time.Hour})
	node.Store(r.node)
	r.reg = New(Options{Log: log, Node: r.node, Logger: quiet, TailCache: tail})
	if err := r.node.Replay(r.reg.Host); err != nil {
		t.Fatal(err)
	}
	for id := range queues {
		if _, err := r.reg.Create(durable(seglog.GroupID(10 + id))); err != nil {
			t.Fatal(err)
		}
	}
	r.node.Start()
	return r
}

func (r *real) close(t testing.TB, clean bool) {
	t.Helper()
	if err := r.node.Close(clean); err != nil {
		t.Fatal(err)
	}
	if err := r.log.Close(clean); err != nil {
		t.Fatal(err)
	}
}

// told is what the clients of one queue were told, by message.
type told struct {
	mu        sync.Mutex
	confirmed map[uint64]bool // the publisher got its confirm
	delivered map[uint64]bool // a consumer got it
	acking    map[uint64]bool // a consumer sends an ack: it may be on disk
	acked     map[uint64]bool // a consumer sent an ack
	ackStable map[uint64]bool // and something that went into the queue behind it was confirmed
}

func newTold() *told {
	return &told{
		confirmed: map[uint64]bool{}, delivered: map[uint64]bool{},
		acking: map[uint64]bool{}, acked: map[uint64]bool{}, ackStable: map[uint64]bool{},
	}
}

func (o *told) clone() *told {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := newTold()
	for _, m := range []struct{ from, to map[uint64]bool }{
		{o.confirmed, c.confirmed}, {o.delivered, c.delivered},
		{o.acking, c.acking}, {o.acked, c.acked}, {o.ackStable, c.ackStable},
	} {
		for k := range m.from {
			m.to[k] = true
		}
	}
	return c
}

func (o *told) confirms() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.confirmed)
}

// key numbers a message: publisher and sequence number.
func key(publisher, seq uint64) uint64 { return publisher<<32 | seq }

func keyOf(t testing.TB, r *Reader, d *Delivery) uint64 {
	m := d.Message
	if d.Load != nil {
		var err error
		if m, err = d.Load.Load(r); err != nil {
			t.Fatal(err)
		}
	}
	return binary.BigEndian.Uint64(m.Head)
}

// publisher publishes until stopped, a window at a time.
func (o *told) publisher(h *Handle, id uint64, rng *rand.Rand, stop *atomic.Bool) {
	for seq := uint64(1); !stop.Load(); {
		n := uint64(1 + rng.IntN(20))
		ps := make([]Publish, n)
		var wg sync.WaitGroup
		wg.Add(1)
		tk := &confirmTicket{o: o, id: id, left: int64(n), done: wg.Done}
		for i := range ps {
			head := make([]byte, 8+rng.IntN(600))
			binary.BigEndian.PutUint64(head, key(id, seq))
			ps[i] = Publish{Message: message.Message{Head: head}, Persistent: true, Ticket: tk, Seq: seq}
			seq++
		}
		o.mu.Lock()
		acks := make([]uint64, 0, len(o.acked))
		for k := range o.acked {
			acks = append(acks, k)
		}
		o.mu.Unlock()
		h.Publish(ps)
		wg.Wait()
		o.mu.Lock() // the acks went in before, so they are on disk as well
		for _, k := range acks {
			o.ackStable[k] = true
		}
		o.mu.Unlock()
	}
}

type confirmTicket struct {
	o    *told
	id   uint64
	left int64
	done func()
}

func (c *confirmTicket) Settled(first, last uint64, out Outcome) {
	if out != Accepted {
		panic(fmt.Sprint("outcome ", out))
	}
	c.o.mu.Lock()
	for s := first; s <= last; s++ {
		c.o.confirmed[key(c.id, s)] = true
	}
	c.o.mu.Unlock()
	if c.left -= int64(last - first + 1); c.left == 0 {
		c.done()
	}
}

// worker is a consumer that acks, requeues or keeps what it gets, on a goroutine of its own.
type worker struct {
	mu  sync.Mutex
	got []Delivery
}

func (w *worker) Deliver(ds []Delivery) {
	w.mu.Lock()
	w.got = append(w.got, ds...)
	w.mu.Unlock()
}
func (w *worker) Cancelled(error) {}
func (w *worker) Drained(uint32)  {}
func (w *worker) Wake()           {}

func (w *worker) take() []Delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	ds := w.got
	w.got = nil
	return ds
}

func (o *told) consumer(t testing.TB, h *Handle, r *Reader, rng *rand.Rand, stop *atomic.Bool) {
	w := &worker{}
	attached := make(chan struct{})
	id := h.Attach(unlimited(uint32(10+rng.IntN(50))), w, func(queue.ConsumerID, error) { close(attached) })
	<-attached
	for !stop.Load() {
		ds := w.take()
		for i := range ds {
			k := keyOf(t, r, &ds[i])
			o.mu.Lock()
			o.delivered[k] = true
			o.mu.Unlock()
			how := queue.Ack
			switch rng.IntN(10) {
			case 0:
				how = queue.Requeue
			case 1:
				continue // keeps it
			}
			if how == queue.Ack {
				o.mu.Lock()
				o.acking[k] = true
				o.mu.Unlock()
			}
			h.Settle(id, ids(ds[i].ID, ds[i].ID), how)
			if how == queue.Ack {
				o.mu.Lock()
				o.acked[k] = true
				o.mu.Unlock()
			}
		}
		if rng.IntN(50) == 0 { // comes back as another consumer: what it kept returns
			gone := make(chan struct{})
			h.Detach(id, func() { close(gone) })
			<-gone
			w = &worker{}
			id = h.Attach(unlimited(20), w, func(queue.ConsumerID, error) {})
		}
		time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
	}
}

// R34, R96: after a crash nothing confirmed is lost, nothing whose ack is on disk comes back, what was
// delivered and comes back says so, and each publisher's messages are in order. Several crashes, on one disk.
// R29: that is so for messages that are on their way back, too.
func TestCrash(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { crashRun(t, seed) })
	}
}

func crashRun(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := vfs.NewMem()
	for range 2 {
		r := openReal(t, fs, "log", realQueues, 64<<10)
		drained := make([]map[uint64]bool, realQueues)
		for q := range realQueues { // start empty, so that each life's messages are known
			drained[q] = drainQueue(t, r, q)
		}
		told := make([]*told, realQueues)
		var stop atomic.Bool
		var wg sync.WaitGroup
		for q := range realQueues {
			told[q] = newTold()
			h := r.reg.Get(seglog.GroupID(10 + q))
			for p := range uint64(2) {
				prng := rand.New(rand.NewPCG(seed, 100+uint64(q)*10+p))
				wg.Go(func() { told[q].publisher(h, p+1, prng, &stop) })
			}
			crng := rand.New(rand.NewPCG(seed, 200+uint64(q)))
			reader := NewReader(r.log.NewReader())
			wg.Go(func() { told[q].consumer(t, h, reader, crng, &stop) })
		}
		for q := range told {
			for told[q].confirms() < 30 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		before := make([]*told2, realQueues)
		for q := range told {
			before[q] = &told2{told[q].clone(), nil}
		}
		crashed := fs.CrashClone(rng)
		for q := range told {
			before[q].after = told[q].clone()
		}
		stop.Store(true)
		wg.Wait()
		r.close(t, false)
		checkCrash(t, crashed, before)
		fs = crashed
	}
}

// told2 is what was told before the crash and up to some time after it.
type told2 struct{ before, after *told }

func drainQueue(t testing.TB, r *real, q int) map[uint64]bool {
	t.Helper()
	seen := map[uint64]bool{}
	for _, d := range collect(t, r, q, true) {
		seen[d.key] = true
	}
	return seen
}

type collected struct {
	key         uint64
	redelivered bool
}

// collect gets all messages of a queue, in order.
func collect(t testing.TB, r *real, q int, noAck bool) []collected {
	t.Helper()
	h := r.reg.Get(seglog.GroupID(10 + q))
	w := &worker{}
	var n uint64
	counted := make(chan struct{})
	h.Explain(func(x Explanation) { n = x.Ready; close(counted) })
	<-counted
	id := h.Attach(ConsumerSpec{NoAck: noAck, Credit: Unlimited}, w, func(queue.ConsumerID, error) {})
	reader := NewReader(r.log.NewReader())
	var out []collected
	for uint64(len(out)) < n {
		ds := w.take()
		for i := range ds {
			out = append(out, collected{keyOf(t, reader, &ds[i]), ds[i].Redelivered})
		}
		if len(ds) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	gone := make(chan struct{})
	h.Detach(id, func() { close(gone) })
	<-gone
	return out
}

func checkCrash(t *testing.T, disk *vfs.Mem, told []*told2) {
	t.Helper()
	r := openReal(t, disk.Clone(), path.Join("log"), realQueues, 64<<10)
	defer r.close(t, true)
	for q := range realQueues {
		before, after := told[q].before, told[q].after
		there := map[uint64]bool{}
		last := map[uint64]uint64{}
		for _, d := range collect(t, r, q, false) {
			p, seq := d.key>>32, d.key&(1<<32-1)
			if there[d.key] {
				t.Errorf("queue %d: message %d/%d is there twice", q, p, seq)
			}
			there[d.key] = true
			if seq <= last[p] {
				t.Errorf("queue %d: message %d/%d comes after %d/%d", q, p, seq, p, last[p])
			}
			last[p] = seq
			if before.ackStable[d.key] {
				t.Errorf("queue %d: message %d/%d was acked on disk and is back", q, p, seq)
			}
			if before.delivered[d.key] && !d.redelivered {
				t.Errorf("queue %d: message %d/%d was delivered before and does not say so", q, p, seq)
			}
		}
		for k := range before.confirmed {
			if !there[k] && !after.acking[k] {
				t.Errorf("queue %d: message %d/%d was confirmed and is lost", q, k>>32, k&(1<<32-1))
			}
		}
	}
}

// crasher is a consumer that cuts the power at its first delivery.
type crasher struct {
	fs   *vfs.Mem
	rng  *rand.Rand
	once sync.Once
	disk chan *vfs.Mem
}

func (c *crasher) cut() {
	c.once.Do(func() { c.disk <- c.fs.CrashClone(c.rng) })
}
func (c *crasher) Deliver([]Delivery) { c.cut() }
func (c *crasher) Cancelled(error)    {}
func (c *crasher) Drained(uint32)     {}
func (c *crasher) Wake()              {}

// R17, R18: a crash at the moment of the first delivery since a clean start does not forget that there was one.
func TestCrashAtTheFirstDelivery(t *testing.T) {
	for seed := range uint64(8) {
		fs := vfs.NewMem()
		r := openReal(t, fs, "log", 1, 1<<20)
		publish(r.reg.Get(10), nil, true, "12345678", "12345678")
		r.close(t, true)
		r = openReal(t, fs, "log", 1, 1<<20)
		c := &crasher{fs: fs, rng: rand.New(rand.NewPCG(seed, 5)), disk: make(chan *vfs.Mem, 1)}
		h := r.reg.Get(10)
		if seed%2 == 0 {
			h.Attach(unlimited(0), c, func(queue.ConsumerID, error) {})
		} else {
			h.Get(h.Getter(ConsumerSpec{}, c), true, func(Delivery, uint64, bool, error) { c.cut() })
		}
		disk := <-c.disk
		r.close(t, false)
		r = openReal(t, disk, "log", 1, 1<<20)
		for _, d := range collect(t, r, 0, true) {
			if !d.redelivered {
				t.Errorf("seed %d: a message was delivered before the crash and does not say so", seed)
			}
		}
		r.close(t, true)
	}
}

// A clean stop keeps everything and marks only what was out.
func TestCleanStopAndStart(t *testing.T) {
	fs := vfs.NewMem()
	r := openReal(t, fs, "log", 1, 1)
	h := r.reg.Get(10)
	for i := range uint64(500) {
		head := make([]byte, 100)
		binary.BigEndian.PutUint64(head, key(1, i+1))
		h.Publish([]Publish{{Message: message.Message{Head: head}, Persistent: true}})
	}
	w := &worker{}
	h.Attach(ConsumerSpec{Prefetch: 10, Credit: Unlimited}, w, func(queue.ConsumerID, error) {})
	for n := 0; n < 10; n += len(w.take()) {
		time.Sleep(time.Millisecond)
	}
	r.close(t, true)
	r = openReal(t, fs, "log", 1, 1)
	if !r.log.Clean() {
		t.Fatal("the stop was not clean")
	}
	got := collect(t, r, 0, true)
	want(t, "messages", len(got), 500)
	for i, d := range got {
		if d.key != key(1, uint64(i+1)) || d.redelivered != (i < 10) {
			t.Fatalf("message %d: %x, redelivered %v", i, d.key, d.redelivered)
		}
	}
	r.close(t, true)
}

// R100: space comes back when a queue is drained, and when it is deleted.
func TestSpaceComesBack(t *testing.T) {
	fs := vfs.NewMem()
	r := openReal(t, fs, "log", 2, 64<<10)
	for q := range 2 {
		h := r.reg.Get(seglog.GroupID(10 + q))
		credit := r.reg.NewCredit()
		for range 2000 {
			h.Publish([]Publish{{Message: message.Message{Head: make([]byte, 1000)}, Persistent: true, Credit: credit}})
			credit.Wait(nil)
		}
	}
	live := func() int64 { return r.log.Stats().LiveItems }
	until := func(n int64) {
		t.Helper()
		for i := 0; live() > n; i++ {
			if i == 20_000 {
				t.Fatalf("%d items live", live())
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if n := len(collect(t, r, 0, true)); n != 2000 {
		t.Fatalf("%d messages", n)
	}
	until(2000)
	r.reg.Drop(11, nil, nil)
	until(0)
	r.close(t, true)
}
