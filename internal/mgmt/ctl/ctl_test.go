package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"holdfast/internal/mgmt/socket"
)

// fake is a node that answers every request with one prepared answer and remembers what it was asked.
type fake struct {
	folder string
	status int
	answer string

	method, uri, body string
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{folder: t.TempDir()}
	l, err := socket.Listen(f.folder)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f}
	done := make(chan struct{})
	go func() { server.Serve(l); close(done) }()
	t.Cleanup(func() { server.Close(); <-done })
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.method, f.uri, f.body = r.Method, r.URL.RequestURI(), string(body)
	w.WriteHeader(f.status)
	io.WriteString(w, f.answer)
}

// ctl runs one command against a folder.
func ctl(folder, stdin string, args ...string) (stdout string, code int, failure string) {
	var out, errs bytes.Buffer
	cmd := Command(Streams{strings.NewReader(stdin), &out, &errs}, folder)
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		var e *Error
		if errors.As(err, &e) {
			return out.String(), e.Code, e.Text
		}
		return out.String(), -1, err.Error()
	}
	return out.String(), 0, errs.String()
}

const queueRows = `[{"name":"q1","vhost":"/","messages":3,"messages_ready":12345678901234567,"durable":true,
	"arguments":{"x-overflow":"reject-publish","x-max-length":10},"state":"running","owner_connection":"c"},
	{"name":"tab\there","messages":0,"arguments":{}}]`

func TestListings(t *testing.T) {
	f := newFake(t)
	f.status = 200
	for _, c := range []struct {
		name, answer, args, uri, out string
	}{
		{"default columns", queueRows, "list_queues", "/api/queues/%2F",
			"Timeout: 60.0 seconds ...\nListing queues for vhost / ...\nname\tmessages\nq1\t3\ntab\\011here\t0\n"},
		{"quiet keeps the header", queueRows, "-q list_queues", "/api/queues/%2F", "name\tmessages\nq1\t3\ntab\\011here\t0\n"},
		{"silent does not", queueRows, "list_queues -s name", "/api/queues/%2F?disable_stats=true", "q1\ntab\\011here\n"},
		{"no headers", queueRows, "list_queues -q --no-table-headers messages_ready", "/api/queues/%2F", "12345678901234567\n\n"},
		{"columns with commas", queueRows, "list_queues -s name,durable policy owner_pid arguments", "/api/queues/%2F?disable_stats=true",
			"q1\ttrue\t\tc\t[{\"x-max-length\",10},{\"x-overflow\",\"reject-publish\"}]\ntab\\011here\t\t\t\t[]\n"},
		{"json", queueRows, "list_queues --formatter json name messages policy arguments", "/api/queues/%2F",
			"[\n{\"name\":\"q1\",\"messages\":3,\"policy\":\"\",\"arguments\":{\"x-max-length\":10,\"x-overflow\":\"reject-publish\"}}\n" +
				",{\"name\":\"tab\\there\",\"messages\":0,\"policy\":\"\",\"arguments\":{}}\n]\n"},
		{"csv", queueRows, "list_queues --formatter csv name arguments", "/api/queues/%2F?disable_stats=true",
			"\"name\",\"arguments\"\n\"q1\",\"[{\"\"x-max-length\"\",10},{\"\"x-overflow\"\",\"\"reject-publish\"\"}]\"\n\"tab\\011here\",\"[]\"\n"},
		{"pretty", `[{"name":"q1","messages":3}]`, "list_queues --formatter pretty_table -q", "/api/queues/%2F",
			"┌──────┬──────────┐\n│ name │ messages │\n├──────┼──────────┤\n│ q1   │ 3        │\n└──────┴──────────┘\n"},
		{"of one type", `[{"name":"q1","type":"classic"},{"name":"q2","type":"quorum"}]`, "list_queues -s --type quorum name", "/api/queues/%2F?disable_stats=true", "q2\n"},
		{"refusals", `[{"name":"q1","counters":{"publish":9,"publishes_refused":3,"publishes_unknown":4}}]`,
			"list_queues -s name publishes_refused publishes_unknown", "/api/queues/%2F?disable_stats=true", "q1\t3\t4\n"},
		{"dead letters", `[{"name":"q1","counters":{"dead_letters":{"rejected":2,"dropped":1}}},{"name":"q2","counters":{}}]`,
			"list_queues -s name dead_letters", "/api/queues/%2F", "q1\t[{\"dropped\",1},{\"rejected\",2}]\nq2\t\n"},
		{"with what its leader knows", `[{"name":"q1","state":"running"}]`, "list_queues -s name state", "/api/queues/%2F", "q1\trunning\n"},
		{"empty", `[]`, "list_queues", "/api/queues/%2F", "Timeout: 60.0 seconds ...\nListing queues for vhost / ...\n"},
		{"empty json", `[]`, "list_queues --formatter json", "/api/queues/%2F", "[\n]\n"},
		{"a vhost with odd characters", `[]`, "list_exchanges -s -p a/%+?#", "/api/exchanges/a%2F%25+%3F%23", ""},
		{"a vhost of dots", `[]`, "list_exchanges -s -p ..", "/api/exchanges/%2E%2E", ""},
		{"exchanges", `[{"name":"","type":"direct"},{"name":"amq.fanout","type":"fanout"}]`, "list_exchanges", "/api/exchanges/%2F",
			"Listing exchanges for vhost / ...\nname\ttype\n\tdirect\namq.fanout\tfanout\n"},
		{"bindings", `[{"source_name":"","destination_name":"q","destination_kind":"queue","routing_key":"q","arguments":{}}]`, "list_bindings", "/api/bindings/%2F",
			"Listing bindings for vhost /...\nsource_name\tsource_kind\tdestination_name\tdestination_kind\trouting_key\targuments\n\texchange\tq\tqueue\tq\t[]\n"},
		{"connections", `[{"name":"n","user":"guest","peer_host":"127.0.0.1","peer_port":5,"state":"running"}]`, "list_connections", "/api/connections",
			"Listing connections ...\nuser\tpeer_host\tpeer_port\tstate\nguest\t127.0.0.1\t5\trunning\n"},
		{"channels", `[{"connection":"n","number":2,"user":"guest","consumer_count":1,"messages_unacknowledged":7}]`, "list_channels -q", "/api/channels",
			"pid\tuser\tconsumer_count\tmessages_unacknowledged\nn (2)\tguest\t1\t7\n"},
		{"consumers", `[{"queue_name":"q","connection":"n","channel":2,"consumer_tag":"t","ack_required":true,"prefetch_count":0,"active":true,"arguments":{}}]`,
			"list_consumers -q", "/api/consumers/%2F",
			"queue_name\tchannel_pid\tconsumer_tag\tack_required\tprefetch_count\tactive\targuments\nq\tn (2)\tt\ttrue\t0\ttrue\t[]\n"},
		{"users", `[{"name":"guest","tags":["administrator","x"]}]`, "list_users", "/api/users", "Listing users ...\nuser\ttags\nguest\t[administrator, x]\n"},
		{"vhosts", `[{"name":"/","description":"d"}]`, "list_vhosts", "/api/vhosts", "Listing vhosts ...\nname\n/\n"},
		{"permissions", `[{"user":"guest","vhost":"/","configure":".*","write":".*","read":".*"}]`, "list_permissions", "/api/vhosts/%2F/permissions",
			"Listing permissions for vhost \"/\" ...\nuser\tconfigure\twrite\tread\nguest\t.*\t.*\t.*\n"},
		{"policies", `[{"vhost":"/","name":"p","pattern":"^a","apply-to":"all","definition":{"max-length":12345678901234567,"dead-letter-exchange":"<x>"},"priority":-1}]`,
			"list_policies", "/api/policies/%2F",
			"Listing policies for vhost \"/\" ...\nvhost\tname\tpattern\tapply-to\tdefinition\tpriority\n/\tp\t^a\tall\t{\"dead-letter-exchange\":\"<x>\",\"max-length\":12345678901234567}\t-1\n"},
		{"policies as json", `[{"vhost":"/","name":"p","pattern":"^a","apply-to":"all","definition":{"max-length":1},"priority":0}]`,
			"list_policies --formatter json", "/api/policies/%2F",
			`[` + "\n" + `{"vhost":"/","name":"p","pattern":"^a","apply-to":"all","definition":"{\"max-length\":1}","priority":0}` + "\n]\n"},
		{"operator policies", `[]`, "list_operator_policies -p v", "/api/operator-policies/v", "Listing operator policy overrides for vhost \"v\" ...\n"},
		{"policies of a queue", `[{"name":"q","policy":"p","operator_policy":"o","effective_policy_definition":{"max-length":1}},{"name":"r","policy":"","operator_policy":"","effective_policy_definition":{}}]`,
			"list_queues -s name policy operator_policy effective_policy_definition", "/api/queues/%2F?disable_stats=true", "q\tp\to\t[{\"max-length\",1}]\nr\t\t\t[]\n"},
		{"the policy of an exchange", `[{"name":"x","policy":"p"}]`, "list_exchanges -s name policy", "/api/exchanges/%2F", "x\tp\n"},
		{"user permissions", `[{"user":"a b","vhost":"/","configure":"","write":".*","read":".*"}]`, "list_user_permissions|a b", "/api/users/a%20b/permissions",
			"Listing permissions for user \"a b\" ...\nvhost\tconfigure\twrite\tread\n/\t\t.*\t.*\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.answer = c.answer
			out, code, failure := ctl(f.folder, "", arguments(c.args)...)
			if code != 0 {
				t.Fatalf("code %d: %s", code, failure)
			}
			if f.uri != c.uri || f.method != "GET" {
				t.Errorf("asked %s %s, want %s", f.method, f.uri, c.uri)
			}
			if out != c.out {
				t.Errorf("have\n%q\nwant\n%q", out, c.out)
			}
		})
	}
}

// arguments splits at | where there is one, else at spaces.
func arguments(line string) []string {
	if strings.Contains(line, "|") {
		return strings.Split(line, "|")
	}
	return strings.Fields(line)
}

func TestRequests(t *testing.T) {
	f := newFake(t)
	f.status = 200
	for _, c := range []struct {
		args, stdin, method, uri, body, answer, out string
	}{
		{"add_user|a/b|pw", "", "POST", "/api/users", `{"name":"a/b","password":"pw"}`, ``, "Adding user \"a/b\" ...\nDone. The user has no permissions yet: see set_permissions.\n"},
		{"-q add_user u", "typed\r\n", "POST", "/api/users", `{"name":"u","password":"typed"}`, ``, ""},
		{"-q change_password u new", "", "PUT", "/api/users/u/password", `{"password":"new"}`, ``, ""},
		{"delete_user u", "", "DELETE", "/api/users/u", ``, ``, "Deleting user \"u\" ...\n"},
		{"set_user_tags u a b", "", "PUT", "/api/users/u/tags", `{"tags":["a","b"]}`, ``, "Setting tags for user \"u\" to [a, b] ...\n"},
		{"-q set_user_tags u", "", "PUT", "/api/users/u/tags", `{"tags":[]}`, ``, ""},
		{"authenticate_user u pw", "", "POST", "/api/users/u/authenticate", `{"password":"pw"}`, ``, "Authenticating user \"u\" ...\nSuccess\n"},
		{"-q|set_permissions|-p|v 1|u|^a|.*|", "", "PUT", "/api/vhosts/v%201/permissions/u", `{"configure":"^a","read":"","write":".*"}`, ``, ""},
		{"-q clear_permissions u", "", "DELETE", "/api/vhosts/%2F/permissions/u", ``, ``, ""},
		{"-q add_vhost v --description d --tags a,b", "", "POST", "/api/vhosts", `{"description":"d","name":"v","tags":["a","b"]}`, ``, ""},
		{"-q delete_vhost /v", "", "DELETE", "/api/vhosts/%2Fv", ``, ``, ""},
		{"set_policy|p/1|^a\".*|{\"max-length\": 10}|--priority|3|--apply-to|queues", "", "PUT", "/api/policies/%2F/p%2F1",
			`{"apply-to":"queues","definition":{"max-length":10},"pattern":"^a\".*","priority":3}`, ``,
			"Setting policy \"p/1\" for pattern \"^a\".*\" to \"{\"max-length\": 10}\" with priority \"3\" for vhost \"/\" ...\n"},
		{"set_operator_policy -p v p .* {} --priority -2", "", "PUT", "/api/operator-policies/v/p", `{"apply-to":"all","definition":{},"pattern":".*","priority":-2}`, ``,
			"Setting operator policy override \"p\" for pattern \".*\" to \"{}\" with priority \"-2\" for vhost \"v\" ...\n"},
		{"clear_policy p", "", "DELETE", "/api/policies/%2F/p", ``, ``, "Clearing policy \"p\" on vhost \"/\" ...\n"},
		{"clear_operator_policy p -p v", "", "DELETE", "/api/operator-policies/v/p", ``, ``, "Clearing operator policy \"p\" on vhost \"v\" ...\n"},
		{"-q declare_queue q --transient --arguments {\"x\":1}", "", "PUT", "/api/queues/%2F/q", `{"arguments":{"x":1},"auto_delete":false,"durable":false}`, ``, ""},
		{"-q declare_queue q --type quorum --arguments {\"x-max-length\":1}", "", "PUT", "/api/queues/%2F/q",
			`{"arguments":{"x-max-length":1,"x-queue-type":"quorum"},"auto_delete":false,"durable":true}`, ``, ""},
		{"purge_queue q", "", "DELETE", "/api/queues/%2F/q/contents", ``, `{"messages":4}`, "Purging queue 'q' in vhost '/' ...\nRemoved 4 messages\n"},
		{"delete_queue q -e", "", "DELETE", "/api/queues/%2F/q?if-empty=true&if-unused=false", ``, `{"messages":4}`,
			"Deleting queue 'q' on vhost '/' ...\nQueue was successfully deleted with 4 ready messages\n"},
		{"delete_queue q -u --formatter json", "", "DELETE", "/api/queues/%2F/q?if-empty=false&if-unused=true", ``, `{"messages":4}`, "{\"messages\":4}\n"},
		{"publish q hi", "", "POST", "/api/exchanges/%2F/amq.default/publish",
			`{"payload":"aGk=","payload_encoding":"base64","properties":{"delivery_mode":2},"routing_key":"q"}`, `{"queues":1}`, "Published to 1 queue(s)\n"},
		{"-q publish --exchange e --transient --header a=b=c --content-type t k", "hi", "POST", "/api/exchanges/%2F/e/publish",
			`{"payload":"aGk=","payload_encoding":"base64","properties":{"content_type":"t","delivery_mode":1,"headers":{"a":"b=c"}},"routing_key":"k"}`, `{"queues":2}`, ""},
		{"get q", "", "POST", "/api/queues/%2F/q/get", `{"count":1,"requeue":true}`,
			`[{"exchange":"","routing_key":"q","redelivered":false,"message_count":0,"properties":{"delivery_mode":2},"payload":"aGk="}]`,
			"routing_key\texchange\tmessage_count\tpayload\tpayload_bytes\tpayload_encoding\tredelivered\tproperties\nq\t\t0\thi\t2\tstring\tfalse\t[{\"delivery_mode\",2}]\n"},
		{"-s get q --ack --count 5", "", "POST", "/api/queues/%2F/q/get", `{"count":5,"requeue":false}`, `[{"routing_key":"q","message_count":0,"payload":"/w==","properties":{}}]`,
			"q\t\t0\t/w==\t1\tbase64\tfalse\t[]\n"},
		{"explain q", "", "GET", "/api/queues/%2F/q/explain", ``, `{"reason":"","lines":["one","two"]}`, "one\ntwo\n"},
		{"-q discard q", "", "DELETE", "/api/queues/%2F/q/data", ``, ``, ""},
		{"-q discard --group 7", "", "DELETE", "/api/groups/7", ``, ``, ""},
		{"-q ping", "", "GET", "/api/health", ``, ``, ""},
		{"environment", "", "GET", "/api/settings", ``, "heartbeat = 60\n", "heartbeat = 60\n"},
		{"close_connection|127.0.0.1:1 -> 127.0.0.1:2|go away", "", "DELETE", "/api/connections/127.0.0.1:1%20-%3E%20127.0.0.1:2?reason=go+away", ``, ``,
			"Closing connection 127.0.0.1:1 -> 127.0.0.1:2, reason: go away...\n"},
		{"close_all_connections x", "", "DELETE", "/api/connections?reason=x&user=&vhost=%2F", ``, `{"connections":3}`,
			"Closing all connections in vhost /, reason: x...\nClosed 3 connections\n"},
		{"-q close_all_connections x --global --user u", "", "DELETE", "/api/connections?reason=x&user=u", ``, `{"connections":3}`, ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			f.answer = c.answer
			out, code, failure := ctl(f.folder, c.stdin, arguments(c.args)...)
			if code != 0 {
				t.Fatalf("code %d: %s", code, failure)
			}
			if f.method != c.method || f.uri != c.uri || f.body != c.body {
				t.Errorf("asked %s %s %s\nwant %s %s %s", f.method, f.uri, f.body, c.method, c.uri, c.body)
			}
			if out != c.out {
				t.Errorf("have %q\nwant %q", out, c.out)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	f := newFake(t)
	answer := func(kind, object string) string {
		text, _ := json.Marshal(refusal{kind, object, "the reason"})
		return string(text)
	}
	for _, c := range []struct {
		args   string
		status int
		answer string
		code   int
		text   string
	}{
		{"nosuch", 0, "", 64, `command "nosuch" not found`},
		{"list_queues nonsense", 0, "", 64, "Info key(s) nonsense are not supported"},
		{"list_queues --formatter xml", 0, "", 64, `formatter "xml"`},
		{"list_queues --nosuch", 0, "", 64, "unknown flag: --nosuch"},
		{"list_queues -t 0", 0, "", 64, "timeout"},
		{"delete_queue", 0, "", 64, "not enough arguments"},
		{"delete_user a b", 0, "", 64, "too many arguments"},
		{"discard", 0, "", 64, "name either"},
		{"discard q --group 3", 0, "", 64, "name either"},
		{"publish q x --header novalue", 0, "", 64, "--header"},
		{"publish q x --declare --exchange e", 0, "", 64, "--declare"},
		{"publish q x --type quorum", 0, "", 64, "--type goes with --declare"},
		{"declare_queue q --type quorum --arguments {\"x-queue-type\":\"classic\"}", 0, "", 64, "--type quorum, and"},
		{"declare_queue q --type quorum --arguments [1]", 0, "", 64, "not a JSON object"},
		{"publish q x --properties [", 0, "", 64, "--properties"},
		{"add_user u", 0, "", 65, "password"},
		{"purge_queue q", 404, answer("not_found", "queue"), 69, "the reason"},
		{"delete_queue q", 404, answer("not_found", "queue"), 64, "the reason"},
		{"delete_queue q -e", 409, answer("refused", ""), 64, "the reason"},
		{"delete_user u", 404, answer("not_found", "user"), 67, "the reason"},
		{"change_password u p", 404, answer("not_found", ""), 67, "the reason"},
		{"set_permissions u a b c", 404, answer("not_found", "user"), 67, "the reason"},
		{"set_permissions u a b c", 404, answer("not_found", "vhost"), 69, "the reason"},
		{"set_permissions u ( b c", 400, answer("invalid", ""), 65, "the reason"},
		{"add_user u p", 409, answer("exists", "user"), 70, "the reason"},
		{"add_vhost v", 409, answer("exists", "vhost"), 0, ""},
		{"delete_vhost v", 404, answer("not_found", "vhost"), 65, "the reason"},
		{"authenticate_user u p", 403, answer("refused", ""), 65, `failed to authenticate user "u"`},
		{"list_permissions", 404, answer("not_found", "vhost"), 65, "the reason"},
		{"set_policy p .*", 0, "", 64, "not enough arguments"},
		{"set_policy p .* {} --priority high", 0, "", 64, "--priority"},
		{"set_policy p .* {\"max-length\":", 0, "", 69, "Could not parse JSON document: "},
		{"set_policy p .* {}", 400, answer("invalid", ""), 69, "Error:\nthe reason"},
		{"set_operator_policy p .* {}", 404, answer("not_found", "vhost"), 65, "the reason"},
		{"set_policy p .* {}", 503, answer("unavailable", ""), 69, "the reason"},
		{"clear_policy p", 404, answer("not_found", "policy"), 69, "the reason"},
		{"clear_operator_policy p", 404, answer("not_found", "policy"), 69, "the reason"},
		{"list_policies", 404, answer("not_found", "vhost"), 65, "the reason"},
		{"list_policies name", 0, "", 64, "too many arguments"},
		{"ping", 503, answer("unavailable", ""), 69, "the reason"},
		{"status", 500, "not json", 70, "500"},
		{"publish q x", 200, `{"queues":0}`, 65, "routed to no queue"},
		{"list_queues", 200, `{"not":"a list"}`, 69, "unable to reach"},
	} {
		f.status, f.answer = c.status, c.answer
		_, code, text := ctl(f.folder, "", strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: code %d, %q; want %d, %q", c.args, code, text, c.code, c.text)
		}
	}
}

func TestWithoutANode(t *testing.T) {
	_, code, text := ctl(t.TempDir(), "", "ping")
	if code != ExitUnavailable || !strings.Contains(text, "no node serves the data folder") {
		t.Fatalf("code %d, %q", code, text)
	}
}

func TestNoAnswerInTime(t *testing.T) {
	folder := t.TempDir()
	l, err := socket.Listen(folder) // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, code, text := ctl(folder, "", "ping", "-t", "0.05")
	if code != ExitTemporary || !strings.Contains(text, "no answer in time") {
		t.Fatalf("code %d, %q", code, text)
	}
}

func TestStatus(t *testing.T) {
	f := newFake(t)
	f.status = 200
	f.answer = `{"os_pid":7,"os":"linux","uptime":61.2,"holdfast_version":"1.0","go_version":"go1.26","node_name":"n1","health":"ok",
		"data_directory":"/data","alarms":[{"kind":"disk","reason":"low","since":"now"}],"memory_used":1500000000,"log_syncs":40,"log_messages_per_sync":2.5,
		"queue_count":3,"orphans":[{"group":12,"reason":"unknown"}],
		"listeners":[{"interface":"[::]","port":5672,"protocol":"amqp","purpose":"AMQP 0-9-1"}]}`
	out, code, failure := ctl(f.folder, "", "status")
	if code != 0 {
		t.Fatalf("code %d: %s", code, failure)
	}
	for _, line := range []string{
		"Status of node n1 ...\nRuntime\n\nOS PID: 7\n", "Uptime (seconds): 61\n", "\nConfig files\n\n(none)\n",
		" * disk alarm since now: low\n", "Total memory used: 1.5000 gb\n", "Syncs: 40\nMessages per sync: 2.5\n", "Queue count: 3\n", "Group 12 belongs to no queue: unknown\n",
		"Interface: [::], port: 5672, protocol: amqp, purpose: AMQP 0-9-1\n",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("missing %q in\n%s", line, out)
		}
	}
	out, _, _ = ctl(f.folder, "", "status", "--formatter", "json")
	if !json.Valid([]byte(out)) || !strings.HasPrefix(out, `{"os_pid":7`) {
		t.Errorf("json: %s", out)
	}
}
