package message

import (
	"math"
	"testing"

	"holdfast/internal/wire"
)

func delayed(v any) wire.Properties {
	return wire.NewProperties(wire.PropertySet{
		ContentType: "text/plain", Headers: wire.NewTable(nil).Append("a", "b").Append(DelayHeader, v).Append("z", int32(1)), MessageID: "7",
	})
}

// What an exchange of RabbitMQ's plugin takes for a delay, and ten years.
func TestDelay(t *testing.T) {
	const years = int64(MostDelay)
	for _, c := range []struct {
		v     any
		want  int64
		wrong bool
	}{
		{int32(5000), 5000, false}, {int64(45 * 24 * 3600 * 1000), 45 * 24 * 3600 * 1000, false}, {int8(5), 5, false}, {uint8(200), 200, false},
		{int16(300), 300, false}, {uint16(60000), 60000, false}, {uint32(math.MaxUint32), math.MaxUint32, false},
		{int32(0), 0, false}, {int32(-5), 0, false}, {years, years, false}, {years + 1, 0, true}, {int64(math.MaxInt64), 0, true},
		{"2500", 2500, false}, {"-3", 0, false}, {"", 0, true}, {"soon", 0, true}, {"1.5", 0, true}, {"99999999999999999999", 0, true},
		{float32(1.9), 1, false}, {float64(-1.9), 0, false}, {math.NaN(), 0, false}, {math.Inf(1), 0, true}, {math.Inf(-1), 0, false},
		{float64(years), years, false}, {true, 0, false}, {nil, 0, false},
	} {
		p := delayed(c.v)
		if got := Delay(p); got != c.want {
			t.Errorf("%v: %d, want %d", c.v, got, c.want)
		}
		if got := CheckDelay(p); (got != "") != c.wrong {
			t.Errorf("%v: wrong: %q", c.v, got)
		}
	}
	for _, p := range []wire.Properties{nil, wire.NewProperties(wire.PropertySet{MessageID: "7"}), wire.NewProperties(wire.PropertySet{Headers: wire.NewTable(nil).Append("x", 1)})} {
		if Delay(p) != 0 || CheckDelay(p) != "" {
			t.Errorf("%v has a delay", p)
		}
	}
}

// A message whose delay is over has it with a minus sign, and is otherwise as it was.
func TestDelayIsOver(t *testing.T) {
	for _, c := range []struct{ before, after any }{
		{int32(5000), int64(-5000)}, {"2500", int64(-2500)}, {int64(-7), int64(-7)}, {float64(1.5), int64(-1)}, {"soon", int64(0)},
	} {
		got := AppendDelayed([]byte("before"), delayed(c.before))
		if want := delayed(c.after); string(got) != string(want) {
			t.Errorf("%v: %v, want %v", c.before, got.Map(), want.Map())
		}
		if Delay(got) != 0 {
			t.Errorf("%v: it would be delayed again", c.before)
		}
	}
	plain := wire.NewProperties(wire.PropertySet{MessageID: "7", Priority: new(uint8(3))})
	if got := AppendDelayed(nil, nil); len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
	if got := AppendDelayed(nil, plain); string(got) != string(plain) {
		t.Errorf("%v, want %v", got.Map(), plain.Map())
	}
}
