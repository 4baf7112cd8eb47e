package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// everyKind has a field of every kind of value, raw as a client may send it.
func everyKind() Table {
	var t Table
	raw := func(key string, kind byte, payload ...byte) {
		t = append(append(append(t, byte(len(key))), key...), kind)
		t = append(t, payload...)
	}
	raw("S", 'S', 0, 0, 0, 2, 'h', 'i')
	raw("T", 'T', 0, 0, 0, 0, 0x5e, 0, 0, 0)
	raw("t0", 't', 0)
	raw("t2", 't', 2)
	raw("t255", 't', 255)
	raw("b", 'b', 0x80)
	raw("B", 'B', 0x80)
	raw("s", 's', 0x80, 0)
	raw("u", 'u', 0x80, 0)
	raw("I", 'I', 0x80, 0, 0, 0)
	raw("i", 'i', 0x80, 0, 0, 0)
	raw("l", 'l', 0x80, 0, 0, 0, 0, 0, 0, 1)
	raw("L", 'L', 0x80, 0, 0, 0, 0, 0, 0, 1)
	raw("f", 'f', 0x3f, 0xc0, 0, 0)
	raw("d", 'd', 0x3f, 0xf8, 0, 0, 0, 0, 0, 0)
	raw("D", 'D', 2, 0xff, 0xff, 0xff, 0xff)
	raw("F", 'F', 0, 0, 0, 4, 1, 'k', 't', 1)
	raw("A", 'A', 0, 0, 0, 11, 'V', 'F', 0, 0, 0, 0, 'b', 1, 't', 7, 'V')
	raw("x", 'x', 0, 0, 0, 2, 0, 0xff)
	raw("V", 'V')
	raw("", 't', 1)
	raw(strings.Repeat("k", 255), 't', 1)
	return t
}

// T9
func TestTableOfEveryKind(t *testing.T) {
	table, err := ParseTable(everyKind())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"S": "hi", "T": int64(0x5e000000), "t0": false, "t2": true, "t255": true,
		"b": int64(-128), "B": int64(128), "s": int64(-32768), "u": int64(32768),
		"I": int64(math.MinInt32), "i": int64(1 << 31), "l": int64(math.MinInt64 + 1), "L": int64(math.MinInt64 + 1),
		"f": 1.5, "d": 1.5, "D": 42949672.95, "F": map[string]any{"k": true},
		"A": []any{nil, map[string]any{}, int64(1), true, nil}, "x": "\x00\xff", "V": nil,
		"": true, strings.Repeat("k", 255): true,
	}
	got := table.Map()
	if len(got) != len(want) || table.Len() != len(want) {
		t.Errorf("%d fields, want %d", len(got), len(want))
	}
	for k, v := range want {
		if fmt.Sprint(got[k]) != fmt.Sprint(v) {
			t.Errorf("%s: %v, want %v", k, got[k], v)
		}
	}
	if again := rebuild(table); !bytes.Equal(again, table) {
		t.Errorf("rebuilt table differs:\n%x\n%x", again, table)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
}

// rebuild takes a table apart and puts it together again.
func rebuild(t Table) Table {
	out := Table{}
	for k, v := range t.All() {
		out = out.AppendValue(k, v)
	}
	return out
}

// T9
func TestTableNesting(t *testing.T) {
	nest := func(depth int) Table {
		var in Table
		for range depth - 1 {
			in = Table(nil).Append("n", in)
		}
		return in
	}
	if _, err := ParseTable(nest(10)); err != nil {
		t.Errorf("10 deep: %v", err)
	}
	if _, err := ParseTable(nest(MaxDepth)); err != nil {
		t.Errorf("%d deep: %v", MaxDepth, err)
	}
	if _, err := ParseTable(nest(MaxDepth + 1)); err == nil {
		t.Errorf("%d deep was accepted", MaxDepth+1)
	}
}

func TestTableRefusesEveryCut(t *testing.T) {
	whole := everyKind()
	starts := map[int]bool{0: true}
	n := 0
	for k, v := range whole.All() {
		n += 2 + len(k) + len(v.raw)
		if _, fixed := fixedSize(v.Kind); !fixed {
			n += 4
		}
		starts[n] = true
	}
	for i := range whole {
		if _, err := ParseTable(whole[:i]); (err == nil) != starts[i] {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if _, err := ParseTable(Table("\x01kZ")); err == nil {
		t.Error("unknown kind Z was accepted")
	}
}

func TestNewTable(t *testing.T) {
	in := map[string]any{
		"b": true, "i": 7, "f": 2.5, "s": "x", "n": nil, "list": []any{"a", 1}, "names": []string{"p", "q"},
		"deep": map[string]any{"u8": uint8(200), "i8": int8(-1), "u16": uint16(1), "i16": int16(-2), "u32": uint32(3), "i32": int32(-4), "f32": float32(0.5)},
		"time": time.Unix(99, 0), "dec": Decimal{1, 15}, "bytes": []byte("raw"), "num": json.Number("12"), "fnum": json.Number("1.25"),
		"same": ValueOf("kept"), "table": NewTable(map[string]any{"z": 1}),
	}
	table := NewTable(in)
	if _, err := ParseTable(table); err != nil {
		t.Fatal(err)
	}
	want := `map[b:true bytes:raw dec:1.5 deep:map[f32:0.5 i16:-2 i32:-4 i8:-1 u16:1 u32:3 u8:200] f:2.5 fnum:1.25 i:7 list:[a 1] n:<nil> names:[p q] num:12 s:x same:kept table:map[z:1] time:99]`
	if got := fmt.Sprint(table.Map()); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if !bytes.Equal(table, NewTable(in)) {
		t.Error("equal maps gave different bytes")
	}
}

// T26: integers are equal by number, whatever their width.
func TestValueEqual(t *testing.T) {
	same := []any{int8(5), int16(5), int32(5), int64(5), uint8(5), uint16(5), uint32(5)}
	for _, a := range same {
		for _, b := range same {
			if !ValueOf(a).Equal(ValueOf(b)) {
				t.Errorf("%T 5 and %T 5 differ", a, b)
			}
		}
		for _, b := range []any{5.0, "5", true, nil, int8(6)} {
			if ValueOf(a).Equal(ValueOf(b)) {
				t.Errorf("%T 5 equals %T %v", a, b, b)
			}
		}
	}
	if got := ValueOf(int32(100)).String(); got != "'100' of type 'signedint'" {
		t.Error(got)
	}
}

func TestGeneratedMethodsAreCurrent(t *testing.T) {
	if out, err := exec.Command("go", "run", "gen.go", "-check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte(everyKind()))
	f.Add([]byte{})
	f.Add([]byte("\x01aF\x00\x00\x00\x05\x01bS\x00\x00"))
	f.Add([]byte("\x01aA\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := ParseTable(b)
		if err != nil {
			return
		}
		if again := rebuild(table); !bytes.Equal(again, table) {
			t.Fatalf("%x became %x", table, again)
		}
		if _, err := json.Marshal(table.Map()); err != nil {
			t.Fatal(err)
		}
		for k, v := range table.All() {
			_ = v.String()
			if first, ok := table.Get(k); !ok || first.IsZero() {
				t.Fatalf("field %q cannot be found", k)
			}
		}
	})
}

func BenchmarkParseTable(b *testing.B) {
	table := NewTable(map[string]any{"x-stream": "a", "trace": "0af7651916cd43dd8448eb211c80319c", "n": 5})
	b.ReportAllocs()
	for b.Loop() {
		t, err := ParseTable(table)
		if err != nil {
			b.Fatal(err)
		}
		if _, ok := t.Get("trace"); !ok {
			b.Fatal("lost")
		}
	}
}
