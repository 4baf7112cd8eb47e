package members

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"holdfast/internal/invariant"
)

// question is what one node asks another. It is written as JSON: questions are few, and a node of another version skips
// what it does not know.
type question struct {
	Do    string        `json:"do"`
	Queue uint64        `json:"queue,omitempty"`
	Node  uint64        `json:"node,omitempty"`
	After uint64        `json:"after,omitempty"` // led: only groups above
	Wait  time.Duration `json:"wait"`            // how long the answer is worth something
}

// What can be asked.
const (
	doStatus   = "status"   // how the member here stands
	doLed      = "led"      // which groups are led here
	doAdd      = "add"      // at the leader: a member on Node
	doRemove   = "remove"   // at the leader: the member on Node
	doTransfer = "transfer" // at the leader: the leadership to the member on Node
)

// reply is the answer.
type reply struct {
	Problem problem `json:"problem,omitempty"`
	Text    string  `json:"text,omitempty"`
	Leader  uint64  `json:"leader,omitempty"` // with notLeader: who is thought to lead
	Status  *status `json:"status,omitempty"`
	Led     []led   `json:"led,omitempty"`
	Next    uint64  `json:"next,omitempty"` // there is more of Led after this group
}

// problem is why something was not done.
type problem string

const (
	notLeader   problem = "not_leader"  // another node leads, or nobody
	refused     problem = "refused"     // it will not be, however often it is asked for
	unavailable problem = "unavailable" // it cannot be now
	unreached   problem = "unreached"   // the node that was asked did not hear, or gave no answer
	late        problem = "late"        // nobody knows what became of it
)

// failure is a problem as an error.
type failure struct {
	problem
	text   string
	leader uint64
}

func (f *failure) Error() string { return f.text }

func (r *reply) err() error {
	if r.Problem == "" {
		return nil
	}
	return &failure{r.Problem, r.Text, r.Leader}
}

func failed(err error) *reply {
	var f *failure
	switch {
	case errors.As(err, &f):
		return &reply{Problem: f.problem, Text: f.text, Leader: f.leader}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &reply{Problem: late, Text: errLate.text}
	}
	return &reply{Problem: unavailable, Text: err.Error()}
}

var errLate = &failure{problem: late, text: "the operation timed out and may not have been completed"}

// The messages of askers: the first byte. The number of the question follows.
const (
	messageAsk byte = 1 + iota
	messageAnswer
)

// Bounds of an asker.
const (
	serveAtOnce = 64
	// goodFor bounds what is asked of others, whatever they ask for.
	goodFor = time.Minute
)

// asker puts questions to other nodes and answers theirs.
type asker struct {
	self  uint64
	send  func(to uint64, add func([]byte) []byte) bool
	serve func(context.Context, *question) *reply
	busy  chan struct{}
	ctx   context.Context // ends with the asker
	work  sync.WaitGroup

	mu      sync.Mutex
	next    uint64 // begins anywhere: an answer to a former process fits none
	pending map[uint64]waiting
	closed  bool
}

type waiting struct {
	node   uint64
	answer chan *reply // room for one
}

func newAsker(ctx context.Context, self uint64, send func(uint64, func([]byte) []byte) bool, serve func(context.Context, *question) *reply) *asker {
	return &asker{
		self: self, send: send, serve: serve, ctx: ctx, busy: make(chan struct{}, serveAtOnce),
		next: rand.Uint64() >> 1, pending: map[uint64]waiting{},
	}
}

// ask puts a question to a node, this one included, and waits for the answer until ctx ends.
func (a *asker) ask(ctx context.Context, node uint64, q question) (*reply, error) {
	if node == a.self {
		r := a.serve(ctx, &q)
		return r, r.err()
	}
	q.Wait = goodFor
	if until, has := ctx.Deadline(); has {
		q.Wait = min(q.Wait, time.Until(until))
	}
	body, err := json.Marshal(q)
	if err != nil {
		invariant.Failf("members: a question cannot be written: %v", err)
	}
	w := waiting{node, make(chan *reply, 1)}
	a.mu.Lock()
	a.next++
	id := a.next
	if !a.closed {
		a.pending[id] = w
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.pending, id)
		a.mu.Unlock()
	}()
	if !a.send(node, envelope(messageAsk, id, body)) {
		return nil, &failure{problem: unreached, text: "the node cannot be reached"}
	}
	select {
	case r := <-w.answer:
		return r, r.err()
	case <-ctx.Done():
		return nil, errLate
	case <-a.ctx.Done():
		return nil, &failure{problem: unavailable, text: "this node stops"}
	}
}

func envelope(kind byte, id uint64, body []byte) func([]byte) []byte {
	return func(dst []byte) []byte {
		dst = binary.AppendUvarint(append(dst, kind), id)
		return append(dst, body...)
	}
}

// receive takes a message of another node's asker. It does not block.
func (a *asker) receive(from uint64, msg []byte) {
	if len(msg) == 0 {
		return
	}
	id, n := binary.Uvarint(msg[1:])
	if n <= 0 {
		return
	}
	switch body := msg[1+n:]; msg[0] {
	case messageAsk:
		a.asked(from, id, body)
	case messageAnswer:
		r := new(reply)
		if err := json.Unmarshal(body, r); err != nil {
			r = &reply{Problem: unavailable, Text: "the node's answer makes no sense"}
		}
		a.answered(from, id, r)
	}
}

func (a *asker) answered(from, id uint64, r *reply) {
	a.mu.Lock()
	w, is := a.pending[id]
	if is = is && w.node == from; is {
		delete(a.pending, id)
	}
	a.mu.Unlock()
	if is {
		w.answer <- r
	}
}

// lost says that nothing sent to a node is known to have arrived, or that it is suspected to be gone.
func (a *asker) lost(node uint64) {
	a.mu.Lock()
	var all []waiting
	for id, w := range a.pending {
		if w.node == node {
			all = append(all, w)
			delete(a.pending, id)
		}
	}
	a.mu.Unlock()
	for _, w := range all {
		w.answer <- &reply{Problem: unreached, Text: "the node is gone, or its link broke"}
	}
}

// asked answers a question, on a goroutine of its own.
func (a *asker) asked(from, id uint64, body []byte) {
	answer := func(r *reply) {
		text, err := json.Marshal(r)
		if err != nil {
			invariant.Failf("members: an answer cannot be written: %v", err)
		}
		a.send(from, envelope(messageAnswer, id, text))
	}
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		answer(&reply{Problem: refused, Text: "the question makes no sense"})
		return
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	select {
	case a.busy <- struct{}{}:
	default:
		a.mu.Unlock()
		answer(&reply{Problem: unreached, Text: "the node answers many others"})
		return
	}
	a.work.Add(1)
	a.mu.Unlock()
	go func() {
		defer a.work.Done()
		ctx, cancel := context.WithTimeout(a.ctx, min(max(q.Wait, 0), goodFor))
		defer cancel()
		r := a.serve(ctx, &q)
		<-a.busy
		answer(r)
	}()
}

// close lets nobody in any more, and waits for those who are. Its context has ended.
func (a *asker) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.work.Wait()
}
