package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func sampleValues() Values {
	sync := NewHistogram(Durations())
	sync.Observe(0.002)
	v := Values{
		Identity: Identity{Node: "n1", Version: "1.2.3", Started: time.UnixMilli(1700000000500)},
		Clients:  Clients{Connections: 3, Blocked: map[string]uint64{"low on disk": 2}, LoginsSucceeded: 5, LoginsFailed: 1},
		Queues:   Queues{Queues: 7, Ready: 10, Unacked: 4, BlockedBy: map[string]uint64{"no consumer": 1, "prefetch": 2}, OldestUnacked: 1500 * time.Millisecond},
		Messages: Messages{Received: 100, Delivered: 90},
		Alarms:   Alarms{Disk: true},
		Dead: DeadLetters{
			Died:      []Died{{"rabbit_classic_queue", "expired", "at_most_once", 3}, {"rabbit_quorum_queue", "rejected", "at_least_once", 2}},
			Confirmed: 2, Dropped: map[string]uint64{"no_route": 1}, Held: 4, UnderWay: 1000,
		},
	}
	v.Peers = []Peer{
		{Name: "n2", Up: true, Reconnects: 2, Suspicions: 1, RoundTrip: 250 * time.Microsecond, Lanes: []PeerLane{
			{Name: "control", SentMessages: 7}, {Name: "data", SentMessages: 3, SentBytes: 4000, ReceivedMessages: 2, ReceivedBytes: 300, Refused: 5, WaitingBytes: 11},
		}},
		{Name: "n3", Detour: true, Lanes: []PeerLane{{Name: "data"}}},
	}
	v.Log = Log{Segments: map[string]uint64{"open": 1, "ready": 2}, Times: LogTimes{Sync: sync.Read(), Hold: sync.Read()}}
	v.Shards = Shards{Shards: 2, RoundSeconds: sync.Read(), StableSeconds: sync.Read()}
	return v
}

func scrape(t *testing.T, values Values) string {
	t.Helper()
	r := NewRegistry()
	r.Serve(func() Values { return values })
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestAggregatedPage(t *testing.T) {
	page := scrape(t, sampleValues())
	for _, line := range []string{
		`rabbitmq_build_info{go_version=`,
		"rabbitmq_connections 3\n",
		"rabbitmq_queue_messages 14\n",
		"rabbitmq_auth_attempts_total 6\n",
		`rabbitmq_global_messages_received_total{protocol="amqp091"} 100` + "\n",
		`rabbitmq_global_messages_delivered_total{protocol="amqp091",queue_type="rabbit_classic_queue"} 90` + "\n",
		`rabbitmq_global_messages_dead_lettered_expired_total{dead_letter_strategy="at_most_once",queue_type="rabbit_classic_queue"} 3` + "\n",
		`rabbitmq_global_messages_dead_lettered_rejected_total{dead_letter_strategy="at_least_once",queue_type="rabbit_quorum_queue"} 2` + "\n",
		"rabbitmq_global_messages_dead_lettered_confirmed_total 2\n",
		`holdfast_dead_letters_dropped_total{cause="no_route"} 1` + "\n",
		"holdfast_dead_letters_held 4\n",
		"holdfast_dead_letters_waiting_bytes 1000\n",
		`holdfast_queues_blocked{reason="no consumer"} 1` + "\n",
		`holdfast_connections_blocked{reason="low on disk"} 2` + "\n",
		"holdfast_queue_oldest_unacked_seconds 1.5\n",
		`holdfast_peer_up{peer="n2"} 1` + "\n",
		`holdfast_peer_up{peer="n3"} 0` + "\n",
		`holdfast_peer_detour{peer="n2"} 0` + "\n",
		`holdfast_peer_detour{peer="n3"} 1` + "\n",
		`holdfast_peer_reconnects_total{peer="n2"} 2` + "\n",
		`holdfast_peer_suspicions_total{peer="n2"} 1` + "\n",
		`holdfast_peer_round_trip_seconds{peer="n2"} 0.00025` + "\n",
		`holdfast_peer_sent_messages_total{lane="control",peer="n2"} 7` + "\n",
		`holdfast_peer_sent_bytes_total{lane="data",peer="n2"} 4000` + "\n",
		`holdfast_peer_received_messages_total{lane="data",peer="n2"} 2` + "\n",
		`holdfast_peer_received_bytes_total{lane="data",peer="n2"} 300` + "\n",
		`holdfast_peer_refused_messages_total{lane="data",peer="n2"} 5` + "\n",
		`holdfast_peer_waiting_bytes{lane="data",peer="n2"} 11` + "\n",
		`holdfast_log_segments{state="ready"} 2` + "\n",
		"holdfast_log_sync_seconds_count 1\n",
		`holdfast_log_hold_seconds_bucket{le="0.002"} 1` + "\n",
		"rabbitmq_alarms_free_disk_space_watermark 1\n",
		"rabbitmq_alarms_memory_used_watermark 0\n",
		"holdfast_start_time_seconds 1.7000000005e+09\n",
		"go_gc_duration_seconds_count",
		`holdfast_collector_pause_seconds_bucket{le="0.01"}`,
		`holdfast_processor_wait_seconds_bucket{le="0.01"}`,
	} {
		if !strings.Contains(page, line) {
			t.Errorf("missing: %s", line)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// Names that RabbitMQ gave are kept even where the linter would name them otherwise.
func TestAggregatedPageLints(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(scrape(t, sampleValues()))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestEmptyValuesStillMakeAPage(t *testing.T) {
	if page := scrape(t, Values{}); !strings.Contains(page, "rabbitmq_queues 0\n") {
		t.Fatal(page)
	}
}

func objects(queues int) Objects {
	return Objects{
		Queues: func(yield func(*Queue) bool) {
			for i := range queues {
				if !yield(&Queue{VHost: "/", Name: fmt.Sprintf("q%d", i), Ready: uint64(i), BodiesSpilled: 100 * uint64(i)}) {
					return
				}
			}
		},
		Connections: func(yield func(*Connection) bool) {
			yield(&Connection{Name: "127.0.0.1:1 -> 127.0.0.1:5672", Channels: 2, ReceivedBytes: 9})
		},
		Channels: func(yield func(*Channel) bool) { yield(&Channel{Name: "c (1)", Prefetch: 20}) },
	}
}

func TestObjectsPage(t *testing.T) {
	o := objects(2)
	plain := o.Queues
	o.Nacked = func(yield func(*Nacks) bool) { yield(&Nacks{VHost: "/", Name: "q1", Refused: 3, Unknown: 4}) }
	o.Dead = func(yield func(*Dead) bool) { yield(&Dead{VHost: "/", Name: "q1", Rejected: 5, Dropped: 2}) }
	o.Queues = func(yield func(*Queue) bool) {
		plain(yield)
		yield(&Queue{VHost: "a/b", Name: "quote\" slash\\ line\n bad\xff", Ready: 5})
	}
	var b bytes.Buffer
	if err := WriteObjects(&b, o); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, line := range []string{
		`rabbitmq_queue_messages_ready{vhost="/",queue="q1"} 1` + "\n",
		`rabbitmq_queue_messages_paged_out_bytes{vhost="/",queue="q1"} 100` + "\n",
		`holdfast_queue_publishes_refused_total{vhost="/",queue="q1"} 3` + "\n",
		`holdfast_queue_publishes_unknown_total{vhost="/",queue="q1"} 4` + "\n",
		`holdfast_queue_dead_lettered_rejected_total{vhost="/",queue="q1"} 5` + "\n",
		`holdfast_queue_dead_letters_dropped_total{vhost="/",queue="q1"} 2` + "\n",
		`rabbitmq_queue_messages_ready{vhost="a/b",queue="quote\" slash\\ line\n bad` + "\uFFFD" + `"} 5` + "\n",
		`rabbitmq_connection_incoming_bytes_total{connection="127.0.0.1:1 -> 127.0.0.1:5672"} 9` + "\n",
		`rabbitmq_consumer_prefetch{channel="c (1)"} 20` + "\n",
	} {
		if !strings.Contains(page, line) {
			t.Errorf("missing %q in\n%s", line, page)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&b)
	if err != nil {
		t.Fatalf("the page does not parse: %v", err)
	}
	if n := len(families["rabbitmq_queue_messages_ready"].GetMetric()); n != 3 {
		t.Fatalf("%d queues, want 3", n)
	}
}

// A page with very many queues must neither be held in memory nor go on when the scraper has left.
func TestObjectsPageStopsWithItsReader(t *testing.T) {
	walked := 0
	o := Objects{Queues: func(yield func(*Queue) bool) {
		for range 1_000_000 {
			walked++
			if !yield(&Queue{Name: "q"}) {
				return
			}
		}
	}}
	if err := WriteObjects(failing{}, o); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("error %v", err)
	}
	if walked > 10_000 {
		t.Fatalf("walked %d queues after the reader had gone", walked)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestObjectsPageDoesNotGrowWithTheQueues(t *testing.T) {
	allocated := func(queues int) float64 {
		return testing.AllocsPerRun(1, func() {
			q := Queue{VHost: "/", Name: "some queue"}
			WriteObjects(io.Discard, Objects{Queues: func(yield func(*Queue) bool) {
				for range queues {
					yield(&q)
				}
			}})
		})
	}
	if few, many := allocated(10), allocated(10_000); many > few+10 {
		t.Fatalf("%v allocations for 10 queues, %v for 10,000", few, many)
	}
}
