package mgmt

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
)

// Quorum is what the management side asks about the members of quorum queues. An order ends with its context at the latest;
// one for many queues then tells how far it got, with *Incomplete.
type Quorum interface {
	Status(ctx context.Context, vhost, queue string) ([]QuorumMember, error)
	Add(ctx context.Context, vhost, queue, node string) error
	Delete(ctx context.Context, vhost, queue, node string) error
	Transfer(ctx context.Context, vhost, queue, node string) error
	ForceShrink(ctx context.Context, vhost, queue string) error
	Grow(ctx context.Context, node string, even bool, only Patterns) ([]MemberResult, error)
	Shrink(ctx context.Context, node string) ([]MemberResult, error)
	Rebalance(ctx context.Context, only Patterns) ([]LeaderCount, error)
	Critical(ctx context.Context) (QuorumCritical, error)
	Leaderless(ctx context.Context, only Patterns) ([]CriticalQueue, error)
	Drain(ctx context.Context) (Drained, error)
	Revive(ctx context.Context) error
}

// QuorumMember is a row of quorum_status: a member of a quorum queue as its node sees it.
type QuorumMember struct {
	Node       string // its name
	State      string // leader, follower, candidate; or why nothing is known: nodedown, noproc, timeout
	Known      bool   // the rest is
	Membership string // voter, promotable
	Last       uint64 // entry in its log
	Written    uint64 // at least so much of that is on its disk
	Applied    uint64
	Commit     uint64
	Snapshot   uint64 // entries up to here are not kept any more
	Term       uint64
	Lag        *uint64 // entries that it lacks, as the leader sees it; nil: nobody leads
	Nacked     uint64  // publishes that clients of its node were nacked because of the queue, since the node started
}

// machineVersion is that of the state machine of queues.
const machineVersion = 1

// MarshalJSON writes the columns of rabbitmq-queues quorum_status. What is not known is empty, as there.
func (m QuorumMember) MarshalJSON() ([]byte, error) {
	var lag any = ""
	if m.Lag != nil {
		lag = *m.Lag
	}
	number := func(n uint64) any {
		if !m.Known {
			return ""
		}
		return n
	}
	return json.Marshal(struct {
		Node       string `json:"Node Name"`
		State      string `json:"Raft State"`
		Membership string `json:"Membership"`
		Last       any    `json:"Last Log Index"`
		Written    any    `json:"Last Written"`
		Applied    any    `json:"Last Applied"`
		Commit     any    `json:"Commit Index"`
		Snapshot   any    `json:"Snapshot Index"`
		Term       any    `json:"Term"`
		Machine    any    `json:"Machine Version"`
		Lag        any    `json:"Lag"`
		Nacked     any    `json:"Nacked Publishes"`
	}{
		m.Node, m.State, m.Membership, number(m.Last), number(m.Written), number(m.Applied), number(m.Commit),
		number(m.Snapshot), number(m.Term), number(machineVersion), lag, number(m.Nacked),
	})
}

// Patterns are regular expressions over the names of vhosts and queues; "" fits all.
type Patterns struct {
	VHost string `json:"vhost_pattern"`
	Queue string `json:"queue_pattern"`
}

// MemberResult says what became of an order for many queues in one of them.
type MemberResult struct {
	VHost  string `json:"vhost"`
	Name   string `json:"name"`
	Size   int    `json:"size"`   // members now
	Result string `json:"result"` // ok, or "error: " and why
	Failed bool   `json:"-"`
}

// LeaderCount is how many quorum queues a node leads.
type LeaderCount struct {
	Node   string `json:"Node name"`
	Queues int    `json:"Number of quorum queues"`
}

// QuorumCritical tells what would be lost if a node were stopped.
type QuorumCritical struct {
	Node        string          `json:"node"`
	Alone       bool            `json:"single_node_cluster"`
	Maintenance bool            `json:"under_maintenance"`
	Queues      []CriticalQueue `json:"queues"`
}

// CriticalQueue is a queue that a check has found: it would be without a majority, or has no leader.
type CriticalQueue struct {
	Readable string `json:"readable_name"`
	Name     string `json:"name"`
	VHost    string `json:"virtual_host"`
	Type     string `json:"type"`
}

// Drained is what became of the leaderships of a node that was put into maintenance.
type Drained struct {
	Moved int            `json:"moved"`
	To    map[string]int `json:"to"`   // how many of them each node leads now, by its name
	Left  int            `json:"left"` // nobody else could lead these
}

// quorumRoutes are the requests about members, with the paths of RabbitMQ's HTTP API where it has them.
func (s *Server) quorumRoutes() map[string]handler {
	return map[string]handler{
		"GET /api/queues/quorum/{vhost}/{queue}/status":                 s.quorumStatus,
		"POST /api/queues/quorum/{vhost}/{queue}/replicas/add":          s.addMember,
		"DELETE /api/queues/quorum/{vhost}/{queue}/replicas/delete":     s.deleteMember,
		"POST /api/queues/quorum/{vhost}/{queue}/replicas/force-shrink": s.forceShrink,
		"POST /api/queues/quorum/{vhost}/{queue}/leader":                s.transferLeadership,
		"POST /api/queues/quorum/replicas/on/{node}/grow":               s.grow,
		"DELETE /api/queues/quorum/replicas/on/{node}/shrink":           s.shrink,
		"POST /api/rebalance/queues":                                    s.rebalance,
		"GET /api/health/checks/node-is-quorum-critical":                s.quorumCritical,
		"GET " + leaderlessChecks + "all-vhosts/":                       s.leaderless,
		"GET " + leaderlessChecks + "all-vhosts":                        s.leaderless,
		"GET " + leaderlessChecks + "all-vhosts/pattern/{pattern}":      s.leaderless,
		"GET " + leaderlessChecks + "vhost/{vhost}/":                    s.leaderless,
		"GET " + leaderlessChecks + "vhost/{vhost}":                     s.leaderless,
		"GET " + leaderlessChecks + "vhost/{vhost}/pattern/{pattern}":   s.leaderless,
		"POST /api/maintenance/drain":                                   s.drain,
		"POST /api/maintenance/revive":                                  s.revive,
		"DELETE /api/queues/{vhost}/{queue}/force":                      s.forceDelete,
	}
}

func (s *Server) quorumStatus(_ http.ResponseWriter, r *http.Request) (any, error) {
	rows, err := s.options.Quorum.Status(r.Context(), r.PathValue("vhost"), r.PathValue("queue"))
	return rows, about("queue", err)
}

// ofNode reads a request that names a node.
func (s *Server) ofNode(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, vhost, queue, node string) error) (any, error) {
	var in struct{ Node string }
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	return nil, about("queue", do(r.Context(), r.PathValue("vhost"), r.PathValue("queue"), in.Node))
}

func (s *Server) addMember(w http.ResponseWriter, r *http.Request) (any, error) {
	return s.ofNode(w, r, s.options.Quorum.Add)
}

func (s *Server) deleteMember(w http.ResponseWriter, r *http.Request) (any, error) {
	return s.ofNode(w, r, s.options.Quorum.Delete)
}

func (s *Server) transferLeadership(w http.ResponseWriter, r *http.Request) (any, error) {
	return s.ofNode(w, r, s.options.Quorum.Transfer)
}

func (s *Server) forceShrink(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, about("queue", s.options.Quorum.ForceShrink(r.Context(), r.PathValue("vhost"), r.PathValue("queue")))
}

func (s *Server) grow(w http.ResponseWriter, r *http.Request) (any, error) {
	in := struct {
		Patterns
		Strategy string
	}{Strategy: "all"}
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	if in.Strategy != "all" && in.Strategy != "even" {
		return nil, invalid("strategy '" + in.Strategy + "' is not recognised.")
	}
	return s.options.Quorum.Grow(r.Context(), r.PathValue("node"), in.Strategy == "even", in.Patterns)
}

func (s *Server) shrink(_ http.ResponseWriter, r *http.Request) (any, error) {
	return s.options.Quorum.Shrink(r.Context(), r.PathValue("node"))
}

func (s *Server) rebalance(w http.ResponseWriter, r *http.Request) (any, error) {
	var only Patterns
	if err := s.read(w, r, &only); err != nil {
		return nil, err
	}
	return s.options.Quorum.Rebalance(r.Context(), only)
}

func (s *Server) quorumCritical(_ http.ResponseWriter, r *http.Request) (any, error) {
	return s.options.Quorum.Critical(r.Context())
}

// leaderlessChecks is where RabbitMQ has the check for quorum queues without a leader.
const leaderlessChecks = "/api/health/checks/quorum-queues-without-elected-leaders/"

// failedCheck is the answer of a health check that has found something.
type failedCheck struct {
	Status string          `json:"status"`
	Reason string          `json:"reason"`
	Queues []CriticalQueue `json:"queues"`
}

func (s *Server) leaderless(_ http.ResponseWriter, r *http.Request) (any, error) {
	only := Patterns{Queue: r.PathValue("pattern")}
	if vhost := r.PathValue("vhost"); vhost != "" {
		if !s.hasVHost(vhost) {
			return nil, noVHost(vhost)
		}
		only.VHost = "^" + regexp.QuoteMeta(vhost) + "$"
	}
	queues, err := s.options.Quorum.Leaderless(r.Context(), only)
	if err != nil {
		return nil, err
	}
	if len(queues) > 0 {
		return failedCheck{"failed", "Detected quorum queues without an elected leader", queues}, nil
	}
	return struct {
		Status string `json:"status"`
	}{"ok"}, nil
}

func (s *Server) drain(_ http.ResponseWriter, r *http.Request) (any, error) {
	return s.options.Quorum.Drain(r.Context())
}

func (s *Server) revive(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, s.options.Quorum.Revive(r.Context())
}

func (s *Server) forceDelete(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, about("queue", s.options.Broker.AdminForceDeleteQueue(r.PathValue("vhost"), r.PathValue("queue")))
}
