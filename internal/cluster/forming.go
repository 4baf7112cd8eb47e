package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/internal/invariant"
)

// How nodes become one cluster.
//
// Each node is given a list of addresses, the same for all. It asks who is there. If somebody is in a cluster, it joins
// that. If not, and a majority of the addresses answers with empty folders and the same list, one of them founds a
// cluster. That there is one founding and no second one is agreed upon as Paxos does it (one value, decided once): a
// founder asks for promises (prepare), learns from them whether anything may have been decided, and has that or, if
// nothing was, a founding of its own consented to (accept). A majority of the addresses has to consent, and any two
// majorities of one list have a node in common; promises and consents are on disk before they are given. So two halves of
// a network never found two clusters, whoever crashes when; and whenever a majority stays up and connected, its members
// get on, since a later attempt overrules an earlier one that went nowhere.
//
// Only the node with the lowest id attempts at first, the others if it gets nowhere, so that attempts seldom meet.

// Times of a Former.
const (
	// askEvery is how often an address is asked.
	askEvery = 500 * time.Millisecond
	// askFresh is how long an answer counts.
	askFresh = 3 * time.Second
	// patience is how long a majority waits for the rest, so that a cluster is founded by all of its nodes if they start
	// together.
	patience = 5 * time.Second
	// turn is how long a node leaves the attempt to each one with a lower id.
	turn = 3 * time.Second
	// patienceFound is the same where lists change. It begins anew with each change.
	patienceFound = 15 * time.Second
	// rest is the longest pause after an attempt that failed; the length is drawn by lot.
	rest = time.Second
)

// ErrSelf is what a call to an address fails with behind which there is this node itself.
var ErrSelf = errors.New("this is the node itself")

// Options of a Former.
type Options struct {
	Self Node
	// List is the addresses the node was told. Its own may be among them or not, and may be spelled in another way there.
	List []string
	// Found says that the list is what was found, by names that stand for several addresses, and may change (Relist). Such
	// a node keeps to a list that it has consented to a founding with, and has more patience with those who do not answer:
	// majorities of two lists need not have a node in common.
	Found bool
	// State is what the node remembers.
	State State
	NewID func() ID
	Rand  func(n int) int // from 0 to below n
}

// Call is a request to send to an address. It must come back with Answered, once.
type Call struct {
	To  string
	Msg []byte
	Tag uint64
}

// Output is what a step of a Former wants done, in this order: State saved, the answer given, the calls made. If it cannot
// be saved, nothing of it may be done, and the Former is of no more use.
type Output struct {
	Save   bool
	Answer []byte // of Serve, unless Admit is set
	Admit  *Node  // of Serve: a node to be added to the catalog; then Admitted says what to answer
	Calls  []Call
}

// Former brings one node into a cluster. Its methods are for one goroutine; now is monotonic, in nanoseconds.
type Former struct {
	o     Options
	state State
	own   string   // the node's own address, as it stands in list
	list  []string // the addresses that have to agree

	others    map[string]*other // by address
	calls     map[uint64]*pending
	lastTag   uint64
	attempt   *attempt
	joining   bool
	highest   uint64 // round of a ballot that was ever seen
	notBefore int64  // the next attempt
	since     int64  // when enough nodes began to be there
	enough    bool
	heeded    int64 // when a promise was given to another
	problem   string
	now       int64
	out       *Output

	patience, turn time.Duration // the constants; tests let nodes get in each other's way
}

// other is who is behind an address.
type other struct {
	asking   bool
	next     int64   // when to ask again
	answer   *answer // the last one
	at       int64   // when it came
	err      error   // why there is none now
	joinNext int64   // when to try again to join there
}

// pending is a call under way.
type pending struct {
	kind    requestKind
	addr    string
	attempt *attempt
}

// New returns a Former of a node that has not begun, or that was stopped anywhere.
func New(o Options) *Former {
	f := &Former{
		o: o, state: o.State, others: map[string]*other{}, calls: map[uint64]*pending{},
		patience: patience, turn: turn,
	}
	f.highest = f.state.Promised.Round
	if o.Found {
		f.patience = patienceFound
	}
	if o.Found && f.state.Granted != nil {
		f.o.List = f.state.List
		o.List = f.state.List
	}
	f.setList(strings.ToLower(strings.TrimSpace(o.Self.Addr)), append(slices.Clone(o.List), o.Self.Addr))
	return f
}

func (f *Former) setList(own string, list []string) {
	f.own, f.list = own, Clean(list)
	for _, addr := range f.list {
		if addr != own && f.others[addr] == nil {
			f.others[addr] = new(other)
		}
	}
	delete(f.others, own)
	f.attempt = nil
}

// Relist says that the list was found to be another one by now. A node that has consented to a founding keeps its own.
func (f *Former) Relist(now int64, list []string) Output {
	return f.step(now, func() {
		if f.Done() || f.state.Granted != nil || slices.Equal(Clean(list), Clean(f.o.List)) {
			return
		}
		f.o.List, f.enough = list, false
		f.setList(strings.ToLower(strings.TrimSpace(f.o.Self.Addr)), append(slices.Clone(list), f.o.Self.Addr))
		for addr := range f.others {
			if !slices.Contains(f.list, addr) {
				delete(f.others, addr)
			}
		}
		f.goOn()
	})
}

// State is what the node has to remember now.
func (f *Former) State() State { return f.state }

// Done reports whether the node is in a cluster.
func (f *Former) Done() bool { return f.state.Founding != nil }

// Problem says for people why the node is in no cluster yet, "" if there is nothing to say.
func (f *Former) Problem() string { return f.problem }

// step runs a step and returns what it wants done.
func (f *Former) step(now int64, do func()) Output {
	f.now, f.out = now, new(Output)
	do()
	return *f.out
}

// Tick gets on with it; to be called every 100 ms or so.
func (f *Former) Tick(now int64) Output { return f.step(now, f.goOn) }

func (f *Former) goOn() {
	if f.Done() {
		return
	}
	for _, addr := range f.list {
		if o := f.others[addr]; o != nil && !o.asking && f.now >= o.next {
			o.asking, o.next = true, f.now+int64(askEvery)
			f.call(addr, nil, request{kind: ask})
		}
	}
	if f.attempt == nil {
		f.decide()
	}
}

// call sends a request.
func (f *Former) call(addr string, a *attempt, r request) uint64 {
	r.from, r.list = f.o.Self, f.list
	f.lastTag++
	f.calls[f.lastTag] = &pending{r.kind, addr, a}
	f.out.Calls = append(f.out.Calls, Call{To: addr, Msg: r.encode(), Tag: f.lastTag})
	return f.lastTag
}

// save has the state written.
func (f *Former) save() { f.out.Save = true }

// Answered brings what became of a call.
func (f *Former) Answered(now int64, tag uint64, msg []byte, err error) Output {
	return f.step(now, func() { f.answered(tag, msg, err) })
}

func (f *Former) answered(tag uint64, msg []byte, err error) {
	p := f.calls[tag]
	invariant.That(p != nil, "cluster: an answer to a call that was never made, or answered already")
	delete(f.calls, tag)
	o := f.others[p.addr]
	switch {
	case o == nil: // it has turned out to be our own address
		return
	case p.kind == ask:
		o.asking = false
	case p.kind == join:
		f.joining = false
	}
	if f.Done() {
		return
	}
	var a *answer
	if err == nil {
		if a, err = decodeAnswer(msg); err == nil && a.from.ID == f.o.Self.ID {
			err = ErrSelf
		}
	}
	if err != nil {
		a, o.err = nil, err
		if errors.Is(err, ErrSelf) {
			f.itself(p.addr)
		}
		if p.kind == ask {
			o.answer = nil
		}
	} else {
		o.answer, o.at, o.err = a, f.now, nil
		f.highest = max(f.highest, a.promised.Round)
		if a.founding.Has(f.o.Self.ID) { // the cluster was founded with this node, which has not heard
			f.enter(a.founding)
			return
		}
	}
	switch p.kind {
	case prepare, accept:
		if p.attempt == f.attempt { // an earlier one's votes have no say
			f.voted(tag, p, a)
		}
	case join:
		f.joinAnswered(o, a, err)
	}
	f.goOn()
}

// itself takes note that the node answers at an address of the list. If its own address is not in the list it was told,
// this is how the others call it.
func (f *Former) itself(addr string) {
	if addr == f.own || slices.Contains(Clean(f.o.List), f.own) {
		return // the list has two names for it: one is never answered
	}
	f.setList(addr, f.o.List)
}

// enter remembers the cluster that the node is in.
func (f *Former) enter(c *Founding) {
	f.state = State{Founding: c}
	f.attempt, f.problem = nil, ""
	f.save()
}

// fresh returns an address's answer, if it is still to be relied on.
func (f *Former) fresh(addr string) *answer {
	if o := f.others[addr]; o != nil && o.answer != nil && f.now-o.at <= int64(askFresh) {
		return o.answer
	}
	return nil
}

// decide chooses what to do next: join, wait, or attempt to found.
func (f *Former) decide() {
	clusters := map[ID]string{}
	for _, addr := range f.list {
		if a := f.fresh(addr); a != nil && a.founding != nil && clusters[a.founding.Cluster] == "" {
			clusters[a.founding.Cluster] = addr
		}
	}
	switch {
	case len(clusters) > 0 && f.unasked() != "":
		f.problem = "no answer yet from " + f.unasked()
	case len(clusters) > 1:
		f.problem = "the listed addresses belong to different clusters: " + describe(clusters)
	case len(clusters) == 1:
		f.tryJoin()
	default:
		f.tryFound()
	}
}

// unasked returns an address of which nothing is known yet, "" if there is none: before it joins a cluster a node looks
// whether it is told of a second one.
func (f *Former) unasked() string {
	for _, addr := range f.list {
		if o := f.others[addr]; o != nil && o.answer == nil && o.err == nil {
			return addr
		}
	}
	return ""
}

func describe(clusters map[ID]string) string {
	var parts []string
	for id, addr := range clusters {
		parts = append(parts, fmt.Sprintf("%s to %s", addr, id))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// tryJoin asks to be let into the cluster that exists.
func (f *Former) tryJoin() {
	if f.joining {
		return
	}
	for _, addr := range f.list {
		a := f.fresh(addr)
		if a == nil || a.founding == nil || f.now < f.others[addr].joinNext {
			continue
		}
		if g := f.state.Granted; g != nil && g.Founding.Cluster != a.founding.Cluster && !slices.Equal(a.founding.List, f.state.List) {
			f.problem = fmt.Sprintf("%s is in the cluster %s, but this node has consented to found another with the addresses %s; to join, it must be reset",
				addr, a.founding.Cluster, strings.Join(f.state.List, ","))
			return
		}
		f.joining = true
		f.others[addr].joinNext = f.now + int64(turn)
		f.call(addr, nil, request{kind: join})
		return
	}
}

func (f *Former) joinAnswered(o *other, a *answer, err error) {
	switch {
	case err != nil:
		f.problem = fmt.Sprintf("the cluster does not answer: %v", err)
	case a.verdict == fine && a.founding != nil:
		f.enter(a.founding)
	case a.verdict == refused:
		f.problem = fmt.Sprintf("the cluster refuses this node: %s", a.text)
	}
}

// tryFound attempts to found a cluster when it is this node's turn.
func (f *Former) tryFound() {
	if g := f.state.Granted; g != nil && !slices.Equal(f.state.List, f.list) {
		f.problem = fmt.Sprintf("this node has consented to found a cluster with the addresses %s and is now told %s; give it the former list, or reset it",
			strings.Join(f.state.List, ","), strings.Join(f.list, ","))
		return
	}
	there := map[uint64]string{f.o.Self.ID: f.own} // who answers, by id
	names := map[string]uint64{f.o.Self.Name: f.o.Self.ID}
	lower := map[uint64]bool{}
	var missing []string
	clash := ""
	for _, addr := range f.list {
		a := f.fresh(addr)
		switch {
		case addr == f.own:
		case a == nil:
			why := "no answer yet"
			if err := f.others[addr].err; err != nil {
				why = strings.TrimPrefix(err.Error(), addr+": ") // a link's errors begin with it
			}
			missing = append(missing, fmt.Sprintf("%s: %s", addr, why))
		case !slices.Equal(a.list, f.list):
			missing = append(missing, fmt.Sprintf("%s has another list: %s, here it is %s", addr, strings.Join(a.list, ","), strings.Join(f.list, ",")))
		default:
			if other, taken := names[a.from.Name]; taken && other != a.from.ID {
				clash = fmt.Sprintf("two nodes have the name '%s'", a.from.Name)
			}
			there[a.from.ID], names[a.from.Name] = addr, a.from.ID
			if a.from.ID < f.o.Self.ID {
				lower[a.from.ID] = true
			}
		}
	}
	switch was := f.enough; {
	case clash != "":
		f.enough, f.problem = false, clash
		return
	case 2*len(there) <= len(f.list):
		f.enough = false
		f.problem = fmt.Sprintf("%d of %d addresses are there, a majority is needed: %s", len(there), len(f.list), strings.Join(missing, "; "))
		return
	case !was:
		f.enough, f.since = true, f.now
	}
	f.problem = strings.Join(missing, "; ")
	start := f.since + int64(len(lower))*int64(f.turn)
	// A name that stands for nobody but this node may come to stand for more.
	alone := f.o.Found && len(f.list) == 1
	if (alone || len(there) < len(f.list)) && f.state.Granted == nil {
		start += int64(f.patience)
	}
	if f.heeded > 0 {
		start = max(start, f.heeded+int64(len(lower)+1)*int64(f.turn))
	}
	if f.now >= max(start, f.notBefore) {
		f.begin(slices.Sorted(maps.Values(there)))
	}
}
