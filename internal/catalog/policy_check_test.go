package catalog

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// definitionOf decodes a definition as whoever takes it from a client does.
func definitionOf(t *testing.T, text string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// R331 R657: what a policy says is checked by RabbitMQ's rules, and refused in its words.
func TestDefinitionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		definition, problem string
		operator            bool // whether an operator policy may have it
	}{
		{`{"max-length":0}`, "", true},
		{`{"max-length":-1}`, "-1 is not a valid maximum length", true},
		{`{"max-length":"5"}`, `<<"5">> is not a valid maximum length`, true},
		{`{"max-length":1.5}`, "1.5 is not a valid maximum length", true},
		{`{"max-length":1e99}`, "1e+99 is not a valid maximum length", true},
		{`{"max-length":null}`, "null is not a valid maximum length", true},
		{`{"max-length-bytes":[1,"a",{"b":true}]}`, `[1,<<"a">>,#{<<"b">> => true}] is not a valid maximum length in bytes`, true},
		{`{"max-in-memory-length":-1}`, "-1 is not a valid maximum memory in bytes", true},
		{`{"max-in-memory-bytes":1}`, "", true},
		{`{"message-ttl":0}`, "", true},
		{`{"message-ttl":-1}`, "-1 is not a valid message TTL", true},
		{`{"expires":1}`, "", true},
		{`{"expires":0}`, "0 is not a valid queue expiry", true},
		{`{"overflow":"reject-publish-dlx"}`, "", true},
		{`{"overflow":"drop"}`, `<<"drop">> is not a valid overflow value`, true},
		{`{"overflow":["drop-head"]}`, `[<<"drop-head">>] is not a valid overflow value`, true},
		{`{"delivery-limit":-1}`, "", true},
		{`{"delivery-limit":true}`, "true is not a valid delivery limit", true},
		{`{"queue-version":2}`, "", true},
		{`{"queue-version":3}`, "3 is not a valid queue-version value", true},
		{`{"target-group-size":5}`, "", true},
		{`{"target-group-size":0}`, "0 is not a valid qq target count value", true},
		{`{"member-placement-tag":"zone"}`, "", true},
		{`{"member-placement-tag":""}`, `<<"">> is not a valid member-placement-tag value. Must be a non-empty string`, true},
		{`{"delayed-retry-type":"disabled"}`, "", true},
		{`{"delayed-retry-type":"all","delayed-retry-min":1,"delayed-retry-max":1}`, "", true},
		{`{"delayed-retry-type":"some"}`, `<<"some">> is not a valid delayed retry type. Must be one of: all, failed, returned, disabled`, true},
		{`{"delayed-retry-type":"all"}`, "delayed-retry-min is required when delayed-retry-type is all", true},
		{`{"delayed-retry-min":0}`, "0 is not a valid delayed retry minimum delay. Must be a positive integer", true},
		{`{"delayed-retry-max":0}`, "0 is not a valid delayed retry maximum delay. Must be a positive integer", true},
		{`{"delayed-retry-min":315360000000,"delayed-retry-max":315360000000}`, "", true},
		{`{"delayed-retry-min":315360000001}`, "delayed-retry-min must not be more than ten years in milliseconds: 315360000001", true},
		{`{"delayed-retry-max":315360000001}`, "delayed-retry-max must not be more than ten years in milliseconds: 315360000001", true},
		{`{"delayed-retry-min":2,"delayed-retry-max":1}`, "delayed-retry-max (1) must not be smaller than delayed-retry-min (2)", true},
		{`{"alternate-exchange":"x"}`, "", false},
		{`{"alternate-exchange":1}`, "1 is not a valid alternate exchange name", false},
		{`{"dead-letter-exchange":"","dead-letter-routing-key":"k"}`, "", false},
		{`{"dead-letter-exchange":1}`, "1 is not a valid dead letter exchange name", false},
		{`{"dead-letter-routing-key":{}}`, "#{} is not a valid dead letter routing key", false},
		{`{"dead-letter-strategy":"at-least-once"}`, "", false},
		{`{"dead-letter-strategy":"twice"}`, `<<"twice">> is not a valid dead letter strategy`, false},
		{`{"consumer-timeout":0,"consumer-disconnected-timeout":0}`, "", false},
		{`{"delivery-delay":315360000000}`, "", false},
		{`{"x-message-deduplication":true,"deduplication-window":0,"deduplication-window-bytes":0,"deduplication-key":"publisher"}`, "", false},
		{`{"x-message-deduplication":1}`, `"x-message-deduplication" must be a boolean, got 1`, false},
		{`{"deduplication-window":-1}`, "-1 is not a valid deduplication window", false},
		{`{"deduplication-window-bytes":-1}`, "-1 is not a valid deduplication window in bytes", false},
		{`{"deduplication-key":"body"}`, `<<"body">> is not a valid deduplication key`, false},
		{`{"delivery-delay":315360000001}`, "315360000001 is not a valid delivery delay", false},
		{`{"consumer-timeout":-1}`, "-1 is not a valid consumer timeout", false},
		{`{"consumer-disconnected-timeout":-1}`, "-1 is not a valid consumer disconnected timeout", false},
		{`{"queue-leader-locator":"balanced"}`, "", false},
		{`{"queue-leader-locator":"min-masters"}`, `<<"min-masters">> is not a valid queue leader locator value`, false},
		{`{"queue-mode":"lazy"}`, "", false},
		{`{"queue-mode":"eager"}`, `<<"eager">> is not a valid queue-mode value`, false},
		{`{"max-age":"7D"}`, "", false},
		{`{"max-age":7}`, "7 is not a valid max age", false},
		{`{"max-age":"7"}`, `<<"7">> is not a valid max age`, false},
		{`{"initial-cluster-size":3}`, "", false},
		{`{"initial-cluster-size":-3}`, "-3 is not a valid cluster size", false},
		{`{"stream-max-segment-size-bytes":3000000000}`, "", false},
		{`{"stream-max-segment-size-bytes":3000000001}`, "3000000001 is not a valid segment size", false},
		{`{"stream-filter-size-bytes":16}`, "", false},
		{`{"stream-filter-size-bytes":15}`, "15 is not a valid filter size. Valid range is 16-255", false},
		{`{"queue-master-locator":"min-masters"}`, "use of deprecated queue-master-locator argument is not permitted", true},
		{`{"ha-mode":"all","foo":{"a":1},"max-length":5}`, `[{<<"foo">>,#{<<"a">> => 1}},{<<"ha-mode">>,<<"all">>}] are not recognised policy settings`, true},
		{`{"foo":1,"max-length":-5}`, "-5 is not a valid maximum length", true},
		{`{"max-priority":5}`, `[{<<"max-priority">>,5}] are not recognised policy settings`, true},
		{`{}`, "no policy provided", true},
		{`[1]`, "definition must be a dictionary: [1]", true},
		{`null`, "definition must be a dictionary: null", true},
	} {
		definition := definitionOf(t, c.definition)
		p, err := MakePolicy(Policy{VHost: "/", Name: "p", Pattern: ".*", ApplyTo: "all"}, definition)
		if got := problemOf(err); got != c.problem {
			t.Errorf("%s:\n%s, want\n%s", c.definition, got, c.problem)
		}
		if err == nil {
			for key, v := range p.Definition.Map() {
				want := definition.(map[string]any)[key]
				if n, is := want.(json.Number); is {
					want, _ = n.Int64()
				}
				if v != want {
					t.Errorf("%s: %s is kept as %v", c.definition, key, v)
				}
			}
		}
		_, err = MakePolicy(Policy{VHost: "/", Name: "p", Pattern: ".*", ApplyTo: "all", Operator: true}, definition)
		if got := problemOf(err); c.operator && got != c.problem {
			t.Errorf("%s by an operator:\n%s, want\n%s", c.definition, got, c.problem)
		} else if !c.operator && !strings.HasSuffix(got, "are not recognised policy settings") {
			t.Errorf("%s by an operator: %q", c.definition, got)
		}
	}
}

func problemOf(err error) string {
	var p *PolicyError
	if !errors.As(err, &p) {
		return ""
	}
	return strings.Join(p.Problems, "\n")
}

// R331, R332: all that is wrong with a policy is told at once. A pattern of Perl's that Go's expressions cannot say is refused with
// what is missing.
func TestPoliciesAreChecked(t *testing.T) {
	const invalid = "pattern should be regular expression but is invalid: "
	for _, c := range []struct{ name, pattern, applyTo, definition, problem string }{
		{"p", "", "classic_queues", `{"expires":1}`, ""},
		{"p", `^(?i)a\.b{2,3}|\Qx.y\E|[[:alpha:]]\d$`, "streams", `{"max-age":"1Y"}`, ""},
		{"p", strings.Repeat("a", 1024), "exchanges", `{"alternate-exchange":"x"}`, ""},
		{"p", strings.Repeat("a", 1025), "all", `{"expires":1}`, "pattern must not exceed 1024 bytes"},
		{"p", "a(b", "all", `{"expires":1}`, invalid + "missing closing ): a(b"},
		{"p", "[a", "all", `{"expires":1}`, invalid + "missing closing ]: [a"},
		{"p", "x(?=a)b", "all", `{"expires":1}`, invalid + "look-ahead is not supported: (?="},
		{"p", "(?!a)b", "all", `{"expires":1}`, invalid + "look-ahead is not supported: (?!"},
		{"p", "(?<=a)b", "all", `{"expires":1}`, invalid + "look-behind is not supported: (?<=a)b"},
		{"p", "(?<!a)b", "all", `{"expires":1}`, invalid + "look-behind is not supported: (?<!a)b"},
		{"p", "(?>a)b", "all", `{"expires":1}`, invalid + "an atomic group is not supported: (?>"},
		{"p", `(a)\1`, "all", `{"expires":1}`, invalid + `a back reference is not supported: \1`},
		{"p", "a++", "all", `{"expires":1}`, invalid + "a possessive quantifier is not supported: ++"},
		{"p", "*", "nonsense", `{"foo":1}`, `[{<<"foo">>,1}] are not recognised policy settings
apply-to 'nonsense' unrecognised; should be one of: 'queues', 'classic_queues', 'quorum_queues', 'streams', 'exchanges', or 'all'
` + invalid + "missing argument to repetition operator: *"},
		{"", "a", "all", `{"expires":1}`, "the name of a policy must not be empty"},
	} {
		_, err := MakePolicy(Policy{VHost: "/", Name: c.name, Pattern: c.pattern, ApplyTo: c.applyTo}, definitionOf(t, c.definition))
		if got := problemOf(err); got != c.problem {
			t.Errorf("%q for %s:\n%s, want\n%s", c.pattern, c.applyTo, got, c.problem)
		}
	}
	err := &PolicyError{[]string{"one", "two"}}
	if want := "Validation failed\n\none\ntwo\n"; err.Error() != want {
		t.Errorf("%q", err.Error())
	}
}
