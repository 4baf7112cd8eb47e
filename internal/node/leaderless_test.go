package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holdfast/internal/queuehost"
)

// Queues without a leader are told once, again after a while, and when it is over.
func TestLeaderlessQueuesAreTold(t *testing.T) {
	n := newPlace(t).run(t)
	h, err := n.queues.CreateQuorum(queuehost.QueueDef{ID: 1 << 40, VHost: "/", Name: "orders", Durable: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := leaderlessWatch{logger: slog.New(slog.NewTextHandler(&out, nil))}
	list := []queuehost.Leaderless{{Handle: h, For: 4 * time.Second, Consumers: 2}}
	w.look(nil, 0)
	w.look(list, 1)
	w.look(list, 2)
	if got := strings.Count(out.String(), "have no leader"); got != 1 || !strings.Contains(out.String(), "queue=orders") || !strings.Contains(out.String(), "consumers=2") {
		t.Errorf("it was told %d times: %s", got, out.String())
	}
	w.look(list, 1+leaderlessAgain)
	if got := strings.Count(out.String(), "have no leader"); got != 2 {
		t.Errorf("it was told %d times after a while", got)
	}
	w.look(nil, 2+leaderlessAgain)
	w.look(nil, 3+leaderlessAgain)
	if got := strings.Count(out.String(), "have a leader again"); got != 1 {
		t.Errorf("the end was told %d times", got)
	}
}
