package mgmt

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/internal/broker"
)

// fakeQuorum notes what it is asked and answers what it was told to.
type fakeQuorum struct {
	asked    string
	err      error
	critical QuorumCritical
}

func (q *fakeQuorum) note(format string, args ...any) error {
	q.asked = fmt.Sprintf(format, args...)
	return q.err
}

func (q *fakeQuorum) Status(_ context.Context, vhost, queue string) ([]QuorumMember, error) {
	lag := uint64(3)
	return []QuorumMember{
		{Node: "n1", State: "leader", Known: true, Membership: "voter", Last: 10, Written: 10, Applied: 9, Commit: 9, Snapshot: 4, Term: 2, Lag: new(uint64), Nacked: 7},
		{Node: "n2", State: "nodedown", Lag: &lag},
	}, q.note("status %s %s", vhost, queue)
}

func (q *fakeQuorum) Add(_ context.Context, vhost, queue, node string) error {
	return q.note("add %s %s %s", vhost, queue, node)
}

func (q *fakeQuorum) Delete(_ context.Context, vhost, queue, node string) error {
	return q.note("delete %s %s %s", vhost, queue, node)
}

func (q *fakeQuorum) Transfer(_ context.Context, vhost, queue, node string) error {
	return q.note("transfer %s %s %s", vhost, queue, node)
}

func (q *fakeQuorum) ForceShrink(_ context.Context, vhost, queue string) error {
	return q.note("force-shrink %s %s", vhost, queue)
}

var fakeResults = []MemberResult{{"/", "a", 3, "ok", false}, {"/", "b", 1, "error: the last node cannot be removed", true}}

func (q *fakeQuorum) Grow(_ context.Context, node string, even bool, only Patterns) ([]MemberResult, error) {
	return fakeResults, q.note("grow %s even=%t %s %s", node, even, only.VHost, only.Queue)
}

func (q *fakeQuorum) Shrink(_ context.Context, node string) ([]MemberResult, error) {
	return fakeResults, q.note("shrink %s", node)
}

func (q *fakeQuorum) Rebalance(_ context.Context, only Patterns) ([]LeaderCount, error) {
	return []LeaderCount{{"n1", 2}, {"n2", 1}}, q.note("rebalance %s %s", only.VHost, only.Queue)
}

func (q *fakeQuorum) Critical(context.Context) (QuorumCritical, error) {
	return q.critical, q.note("critical")
}

func (q *fakeQuorum) Leaderless(_ context.Context, only Patterns) ([]CriticalQueue, error) {
	return q.critical.Queues, q.note("leaderless %s %s", only.VHost, only.Queue)
}

func (q *fakeQuorum) Drain(context.Context) (Drained, error) {
	return Drained{5, map[string]int{"n3": 2, "n2": 3}, 1}, q.note("drain")
}
func (q *fakeQuorum) Revive(context.Context) error { return q.note("revive") }

// startQuorum starts a server with a process around it.
func startQuorum(t *testing.T) (*fakeQuorum, *fakeBroker, *Options) {
	q := new(fakeQuorum)
	b, o, _ := start(t, func(o *Options) {
		door, err := OpenDoor(o.Settings, &fakeApp{state: AppState{Node: "n1", State: "running"}}, o.Logger)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { door.Close() })
		o.Quorum, o.Door = q, door
	})
	return q, b, o
}

// The commands about members of quorum queues, in the words of rabbitmq-queues and rabbitmq-upgrade.
func TestQuorumCommands(t *testing.T) {
	q, _, o := startQuorum(t)
	const status = `┌───────────┬────────────┬────────────┬────────────────┬──────────────┬──────────────┬──────────────┬────────────────┬──────┬─────────────────┬─────┬──────────────────┐
│ Node Name │ Raft State │ Membership │ Last Log Index │ Last Written │ Last Applied │ Commit Index │ Snapshot Index │ Term │ Machine Version │ Lag │ Nacked Publishes │
├───────────┼────────────┼────────────┼────────────────┼──────────────┼──────────────┼──────────────┼────────────────┼──────┼─────────────────┼─────┼──────────────────┤
│ n1        │ leader     │ voter      │ 10             │ 10           │ 9            │ 9            │ 4              │ 2    │ 1               │ 0   │ 7                │
│ n2        │ nodedown   │            │                │              │              │              │                │      │                 │ 3   │                  │
└───────────┴────────────┴────────────┴────────────────┴──────────────┴──────────────┴──────────────┴────────────────┴──────┴─────────────────┴─────┴──────────────────┘
`
	const results = "vhost\tname\tsize\tresult\n/\ta\t3\tok\n/\tb\t1\terror: the last node cannot be removed\n"
	for _, c := range []struct{ args, asked, says string }{
		{"quorum_status -p v q/1", "status v q/1", "Status of quorum queue q/1 on node n1 ...\n" + status},
		{"quorum_status q --formatter json", "status / q", `[
{"Node Name":"n1","Raft State":"leader","Membership":"voter","Last Log Index":10,"Last Written":10,"Last Applied":9,"Commit Index":9,"Snapshot Index":4,"Term":2,"Machine Version":1,"Lag":0,"Nacked Publishes":7}
,{"Node Name":"n2","Raft State":"nodedown","Membership":"","Last Log Index":"","Last Written":"","Last Applied":"","Commit Index":"","Snapshot Index":"","Term":"","Machine Version":"","Lag":3,"Nacked Publishes":""}
]
`},
		{"add_member -p v q n4", "add v q n4", "Adding a member for queue q on node n4...\n"},
		{"add_member q n4 --membership voter --formatter json", "add / q n4", `{"node":"n1","result":"ok"}` + "\n"},
		{"delete_member q n4", "delete / q n4", "Removing a replica of queue q on node n4...\n"},
		{"transfer_leadership q n4", "transfer / q n4", "Transferring leadership of quorum queue q to node n4...\nn4\n"},
		{"transfer_leadership q n4 --formatter json", "transfer / q n4", `{"leader":"n4"}` + "\n"},
		{"force_shrink_member_to_current_member q", "force-shrink / q", "Shrinking quorum queue q to the member on node n1...\n"},
		{"grow n/4 all", "grow n/4 even=false .* .*", "Growing all quorum queues on n/4...\n" + results},
		{"grow n4 even --vhost-pattern ^v --queue-pattern q -q", "grow n4 even=true ^v q", results},
		{"grow n4 all --errors-only -s", "grow n4 even=false .* .*", "/\tb\t1\terror: the last node cannot be removed\n"},
		{"shrink n4", "shrink n4", "Shrinking quorum queues on n4...\n" + results},
		{"shrink n4 --formatter json --errors-only", "shrink n4", `[
{"vhost":"/","name":"b","size":1,"result":"error: the last node cannot be removed"}
]
`},
		{"rebalance quorum", "rebalance .* .*", "Re-balancing leaders of quorum queues...\n" + `┌───────────┬─────────────────────────┐
│ Node name │ Number of quorum queues │
├───────────┼─────────────────────────┤
│ n1        │ 2                       │
│ n2        │ 1                       │
└───────────┴─────────────────────────┘
`},
		{"rebalance all --formatter json", "rebalance .* .*", `[
{"Node name":"n1","Number of quorum queues":2}
,{"Node name":"n2","Number of quorum queues":1}
]
`},
		{"drain", "drain", "Will put node n1 into maintenance mode. It will lead no quorum queues, and get no new ones.\n" +
			"Handed over the leadership of 5 quorum queue(s): 3 to node n2, 2 to node n3; 1 have no other member that could lead\n"},
		{"drain --formatter json", "drain", `{"left":1,"moved":5,"to":{"n2":3,"n3":2}}` + "\n"},
		{"revive", "revive", "Will put node n1 back into regular operating mode. The node will again lead quorum queues and get new ones.\n"},
		{"revive --formatter json", "revive", `{"node":"n1","result":"ok"}` + "\n"},
	} {
		if out := must(t, o, strings.Fields(c.args)...); q.asked != c.asked || out != c.says {
			t.Errorf("%s: asked %q, want %q; said\n%s\nwant\n%s", c.args, q.asked, c.asked, out, c.says)
		}
	}
}

func TestQuorumCommandsRefused(t *testing.T) {
	q, _, o := startQuorum(t)
	check := func(code int, says string, args ...string) {
		t.Helper()
		if out, got := run(o, args...); got != code || !strings.Contains(out, says) {
			t.Errorf("%v: code %d, want %d, and %q in %q", args, got, code, says, out)
		}
	}
	check(64, "strategy 'some' is not recognised.", "grow", "n1", "some")
	check(64, "voter status 'x' is not recognised.", "add_member", "q", "n1", "--membership", "x")
	check(64, "never get a vote", "grow", "n1", "all", "--membership", "non_voter")
	check(64, "type stream is not supported", "rebalance", "stream")
	check(64, "not enough arguments", "delete_member", "q")
	q.err = &broker.AdminError{Kind: broker.Rejected, Text: "The target node is already the leader of this queue"}
	check(69, "Error:\nThe target node is already the leader of this queue", "transfer_leadership", "q", "n1") // R146
	q.err = &broker.AdminError{Kind: broker.Unavailable, Text: "the operation timed out"}
	check(69, "Error:\nthe operation timed out", "add_member", "q", "n1")
	q.err = &broker.AdminError{Kind: broker.NotFound, Text: "no queue 'q' in vhost '/'"}
	check(65, "no queue 'q'", "quorum_status", "q")
	q.err = &broker.AdminError{Kind: broker.Invalid, Text: "node 'n9' is not in the cluster"}
	check(65, "n9", "shrink", "n9")
}

// R137: may this node be stopped?
func TestCheckIfNodeIsQuorumCritical(t *testing.T) {
	q, _, o := startQuorum(t)
	const command, banner = "check_if_node_is_quorum_critical", "Checking if node n1 is critical for quorum of any quorum queues ...\n"
	for _, c := range []struct {
		critical   QuorumCritical
		code       int
		says, json string
	}{
		{QuorumCritical{Node: "n1"}, 0, banner + "Node n1 reported no quorum queues with minimum quorum\n", `{"result":"ok"}` + "\n"},
		{QuorumCritical{Node: "n1", Alone: true}, 0, banner + "Node n1 seems to be the only one in a single node cluster, the check does not apply\n",
			`{"message":"Target node seems to be the only one in a single node cluster, the check does not apply","result":"ok"}` + "\n"},
		{QuorumCritical{Node: "n1", Maintenance: true}, 0, banner + "Node n1 seems to be in maintenance mode, the check does not apply\n",
			`{"message":"Target node seems to be in maintenance mode, the check does not apply","result":"ok"}` + "\n"},
		{QuorumCritical{Node: "n1", Queues: []CriticalQueue{{"queue 'q' in vhost '/'", "q", "/", "quorum"}, {"queue 'r' in vhost '/'", "r", "/", "quorum"}}}, 69,
			banner + "Error:\nqueue 'q' in vhost '/' would lose quorum if node n1 is stopped\nqueue 'r' in vhost '/' would lose quorum if node n1 is stopped",
			`{"message":"Node n1 reported local queues with minimum online quorum","queues":[{"readable_name":"queue 'q' in vhost '/'","name":"q","virtual_host":"/","type":"quorum"},` +
				`{"readable_name":"queue 'r' in vhost '/'","name":"r","virtual_host":"/","type":"quorum"}],"result":"error"}` + "\n" +
				"Error:\nNode n1 reported local queues with minimum online quorum"},
	} {
		q.critical = c.critical
		if out, code := run(o, command); code != c.code || out != c.says {
			t.Errorf("code %d, want %d; said\n%s\nwant\n%s", code, c.code, out, c.says)
		}
		if out, code := run(o, command, "--formatter", "json"); code != c.code || out != c.json {
			t.Errorf("code %d, want %d; said\n%s\nwant\n%s", code, c.code, out, c.json)
		}
	}
}

// R129: a queue without a majority can be deleted.
func TestForceDelete(t *testing.T) {
	_, b, o := startQuorum(t)
	must(t, o, "declare_queue", "q")
	if out := must(t, o, "force_delete", "q"); out != "Deleting queue 'q' on vhost '/', whatever it holds ...\n" || len(b.queues) > 0 {
		t.Errorf("said %q, left %v", out, b.queues)
	}
	if out, code := run(o, "force_delete", "q"); code != 65 {
		t.Errorf("code %d: %s", code, out)
	}
}

// An answer that lacks something is shown, and then what is missing: the command has not done all that was asked.
func TestAnswerInPart(t *testing.T) {
	q, _, o := startQuorum(t)
	q.err = &Incomplete{"this was done in part only: node n2 does not answer"}
	if out, code := run(o, "rebalance", "all", "-s"); code != 69 || !strings.Contains(out, "node n2 does not answer") || !strings.Contains(out, "n1") {
		t.Errorf("code %d: %s", code, out)
	}
}

// A request ends before its client stops waiting.
func TestRequestsEnd(t *testing.T) {
	r, err := http.NewRequest("GET", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]time.Duration{"": requestWait, "10": 8 * time.Second, "x": requestWait, "-1": requestWait, "NaN": requestWait} {
		r.Header.Set(waitHeader, header)
		if got := patience(r); got != want {
			t.Errorf("a client that waits for %q seconds: %v, want %v", header, got, want)
		}
	}
}

// The check for queues without a leader, in the words of rabbitmq-diagnostics, and at the places of RabbitMQ's HTTP API.
func TestLeaderlessCheck(t *testing.T) {
	q, _, o := startQuorum(t)
	const name = "check_for_quorum_queues_without_an_elected_leader"
	if out := must(t, o, name); out != "Checking leader replicas of quorum queues matching '.*' in vhost / ...\n"+
		"Node n1 reported all quorum queues as having responsive leader replicas\n" || q.asked != "leaderless ^/$ .*" {
		t.Errorf("asked %q, said %q", q.asked, out)
	}
	must(t, o, name, "--across-all-vhosts", "^a/b")
	if q.asked != "leaderless  ^a/b" {
		t.Errorf("asked %q", q.asked)
	}
	if out, code := run(o, name, "-p", "none"); code == 0 || !strings.Contains(out, "'none'") {
		t.Errorf("a vhost that is not there: code %d, %s", code, out)
	}
	q.critical.Queues = []CriticalQueue{{"queue 'q' in vhost '/'", "q", "/", "quorum"}}
	out, code := run(o, name, "-s")
	if code != 69 || !strings.HasSuffix(out, "queue 'q' in vhost '/' does not have an elected leader replica or the replica was unresponsive") {
		t.Errorf("code %d, %s", code, out)
	}
	out, code = run(o, name, "--formatter", "json")
	if code != 69 || !strings.Contains(out, `"queues":[{"readable_name":"queue 'q' in vhost '/'","name":"q","virtual_host":"/","type":"quorum"}]`) {
		t.Errorf("code %d, %s", code, out)
	}
	s := &Server{options: *o}
	s.options.Quorum = q
	for _, at := range []string{"all-vhosts/", "all-vhosts", "vhost/%2F/", "vhost/%2F", "all-vhosts/pattern/x", "vhost/%2F/pattern/x"} {
		w := httptest.NewRecorder()
		s.localAPI().ServeHTTP(w, httptest.NewRequest("GET", leaderlessChecks+at, nil))
		if w.Code != 503 || !strings.HasPrefix(w.Body.String(), `{"status":"failed","reason":"Detected quorum queues without an elected leader","queues":[{`) {
			t.Errorf("%s: %d %s", at, w.Code, w.Body)
		}
	}
	q.critical.Queues = nil
	w := httptest.NewRecorder()
	s.localAPI().ServeHTTP(w, httptest.NewRequest("GET", leaderlessChecks+"all-vhosts/", nil))
	if w.Code != 200 || w.Body.String() != `{"status":"ok"}`+"\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
