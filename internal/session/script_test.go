package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/cockroachdb/datadriven"

	"holdfast/internal/wire"
)

// The scripts under testdata talk to a server in frames. Their commands:
//
//	connect <name> [user=...] [frame-max=...] [heartbeat=...] [capabilities=none]
//	    connects, logs in, opens the vhost; prints nothing
//	dial <name>             connects and sends nothing
//	raw <name>              sends bytes, written in Go's way, line by line
//	send <name>             sends what the lines say: <channel> <method> field=value ...
//	recv <name> [n]         prints the next n frames (1); methods with content as one
//	closed <name>           waits until the server has closed the connection
//	tune frame-max=... channel-max=... [vhost=...]
//	    does the handshake with these and prints the answer to connection.open
//	alarm on|off            switches the memory alarm
//	hold <name> on|off      holds the connection back for another node's alarm
//	advance <duration>      moves the clock, in scripts whose name begins with time_
//	stall <queue>           lets nothing happen in a queue
//	go-on                   until now
//	close-connections       closes all connections from the server's side
//
// A line of send may also be: <channel> header size=n [property=value ...],
// <channel> body <text>, heartbeat, or <channel> publish key=... body=... ,
// short for method, header and one body frame.
type script struct {
	rig     *rig
	clients map[string]*frameClient
	held    chan struct{} // closed when the queue that is held may go on
}

// frameClient speaks frames and nothing above them.
type frameClient struct {
	t  testing.TB
	nc net.Conn
	in []byte
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			var options []rigOption
			if strings.HasPrefix(filepath.Base(file), "time_") {
				options = append(options, manualClock)
			}
			s := &script{rig: newRig(t, options...), clients: make(map[string]*frameClient)}
			datadriven.RunTest(t, file, s.run)
		})
	}
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	name := ""
	if len(d.CmdArgs) > 0 {
		name = d.CmdArgs[0].Key
	}
	c := s.clients[name]
	if c != nil {
		c.t = t
	}
	switch d.Cmd {
	case "dial":
		s.clients[name] = s.dial(t)
	case "connect":
		s.connect(t, name, d)
	case "tune":
		s.clients["tune"] = s.dial(t)
		return s.tune(t, s.clients["tune"], d.CmdArgs)
	case "raw":
		for _, line := range strings.Split(d.Input, "\n") {
			text, err := strconv.Unquote(line)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			c.write([]byte(text))
		}
	case "send":
		c.write(encodeLines(t, d.Input))
	case "recv":
		n := 1
		if len(d.CmdArgs) > 1 {
			n, _ = strconv.Atoi(d.CmdArgs[1].Key)
		}
		var b strings.Builder
		for range n {
			b.WriteString(c.next() + "\n")
		}
		return b.String()
	case "closed":
		return c.untilClosed()
	case "alarm":
		s.rig.broker.SetAlarm("memory", name == "on", "too little of it")
	case "hold":
		s.conn(t, name).Hold(d.CmdArgs[1].Key == "on", "low on disk at node n2")
	case "waits":
		conn := s.conn(t, name)
		until(t, "nothing more is read", conn.waiting.Load)
	case "advance":
		d, err := time.ParseDuration(name)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "what the clients have read counts as sent", func() bool { return !s.rig.writing() })
		s.rig.clock.Advance(d)
	case "stall":
		s.held = make(chan struct{})
		s.rig.stall(t, name, s.held)
	case "go-on":
		close(s.held)
	case "close-connections":
		s.rig.broker.CloseAllConnections("", "", "maintenance")
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return ""
}

// conn returns the server's side of a client's connection.
func (s *script) conn(t *testing.T, name string) *conn {
	s.rig.server.mu.Lock()
	defer s.rig.server.mu.Unlock()
	nc := s.clients[name].nc
	for c := range s.rig.server.conns {
		if c.name == nc.LocalAddr().String()+" -> "+nc.RemoteAddr().String() {
			return c
		}
	}
	t.Fatalf("%s has no connection", name)
	return nil
}

// writing reports whether anybody writes to a client: the writer, or who put something little.
func (r *rig) writing() bool {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	for c := range r.server.conns {
		c.out.mu.Lock()
		rests := c.out.parked || c.out.closed
		c.out.mu.Unlock()
		if !rests {
			return true
		}
	}
	return false
}

func (s *script) dial(t testing.TB) *frameClient {
	nc, err := net.Dial("tcp", s.rig.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &frameClient{t: t, nc: nc}
}

// connect does the whole handshake.
func (s *script) connect(t *testing.T, name string, d *datadriven.TestData) {
	c := s.dial(t)
	s.clients[name] = c
	if got := s.tune(t, c, d.CmdArgs[1:]); got != "0 connection.open-ok\n" {
		t.Fatal(got)
	}
}

func (s *script) tune(t *testing.T, c *frameClient, options []datadriven.CmdArg) string {
	args := map[string]string{}
	for _, a := range options {
		args[a.Key] = a.Vals[0]
	}
	return c.tune(args) + "\n"
}

// tune does the handshake with the given settings and returns the answer to
// connection.open.
func (c *frameClient) tune(args map[string]string) string {
	t := c.t
	t.Helper()
	for key, value := range map[string]string{
		"user": "guest", "frame-max": "131072", "channel-max": "2047", "heartbeat": "0", "vhost": "/",
	} {
		if _, given := args[key]; !given {
			args[key] = value
		}
	}
	properties := map[string]any{}
	if args["capabilities"] != "none" {
		properties["capabilities"] = map[string]any{
			"connection.blocked": true, "consumer_cancel_notify": true, "authentication_failure_close": true,
		}
	}
	c.write([]byte("AMQP\x00\x00\x09\x01"))
	c.expect(wire.IDConnectionStart)
	c.method(0, &wire.ConnectionStartOk{
		ClientProperties: wire.NewTable(properties), Mechanism: "PLAIN",
		Response: []byte("\x00" + args["user"] + "\x00guest"), Locale: "en_US",
	})
	c.expect(wire.IDConnectionTune)
	number := func(key string) uint64 {
		n, err := strconv.ParseUint(args[key], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	c.method(0, &wire.ConnectionTuneOk{
		FrameMax: uint32(number("frame-max")), ChannelMax: uint16(number("channel-max")), Heartbeat: uint16(number("heartbeat")),
	})
	c.method(0, &wire.ConnectionOpen{VirtualHost: args["vhost"]})
	return c.next()
}

func (c *frameClient) write(b []byte) {
	c.t.Helper()
	c.nc.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

func (c *frameClient) method(channel uint16, m wire.Method) {
	c.t.Helper()
	c.write(wire.AppendMethod(nil, channel, m))
}

func (c *frameClient) expect(id wire.MethodID) {
	c.t.Helper()
	f, err := c.frame()
	if err != nil {
		c.t.Fatalf("%s expected: %v", id, err)
	}
	if got, _, _ := wire.SplitMethod(f.Payload); got != id {
		c.t.Fatalf("%s expected, got %s", id, describe(f))
	}
}

// frame reads one frame.
func (c *frameClient) frame() (wire.Frame, error) {
	for {
		if len(c.in) >= wire.FrameHeaderSize {
			head := wire.ParseFrameHead(c.in)
			if size := int(head.Size) + wire.FrameOverhead; head.Type.Known() && len(c.in) >= size {
				f := wire.Frame{Type: head.Type, Channel: head.Channel, Payload: c.in[wire.FrameHeaderSize : size-1]}
				if c.in[size-1] != wire.FrameEnd {
					return f, fmt.Errorf("frame ends with %02x", c.in[size-1])
				}
				c.in = c.in[size:]
				return f, nil
			}
		}
		buf := make([]byte, 64<<10)
		c.nc.SetReadDeadline(time.Now().Add(patience))
		n, err := c.nc.Read(buf)
		if n == 0 {
			return wire.Frame{}, fmt.Errorf("%w after %q", err, c.in)
		}
		c.in = append(c.in, buf[:n]...)
	}
}

// next describes the next method, with its content if it has one.
func (c *frameClient) next() string {
	f, err := c.frame()
	if err != nil {
		return "error: " + err.Error()
	}
	text := describe(f)
	id, _, _ := wire.SplitMethod(f.Payload)
	if f.Type != wire.FrameMethod || !id.HasContent() {
		return text
	}
	hf, err := c.frame()
	if err != nil || hf.Type != wire.FrameHeader || hf.Channel != f.Channel {
		return fmt.Sprintf("%s without a header: %v %s", text, err, describe(hf))
	}
	h, err := wire.ParseContentHeader(hf.Payload)
	if err != nil {
		return text + ": " + err.Error()
	}
	var body []byte
	frames := 0
	for uint64(len(body)) < h.BodySize {
		bf, err := c.frame()
		if err != nil || bf.Type != wire.FrameBody || bf.Channel != f.Channel {
			return fmt.Sprintf("%s without its body: %v %s", text, err, describe(bf))
		}
		body = append(body, bf.Payload...)
		frames++
	}
	if m := h.Properties.Map(); len(m) > 0 {
		text += fmt.Sprintf(" %v", m)
	}
	if len(body) > 100 {
		return fmt.Sprintf("%s %d bytes in %d frames", text, len(body), frames)
	}
	return fmt.Sprintf("%s %q", text, body)
}

// untilClosed reads until the server closes and describes what still comes,
// heartbeats left out.
func (c *frameClient) untilClosed() string {
	var b strings.Builder
	c.nc.SetReadDeadline(time.Now().Add(patience))
	rest, err := io.ReadAll(c.nc)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) { // that comes when it had bytes of ours unread
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	if c.in = bytes.ReplaceAll(append(c.in, rest...), wire.AppendHeartbeat(nil), nil); len(c.in) > 0 {
		fmt.Fprintf(&b, "%q\n", c.in)
	}
	return b.String()
}

// decodeMethod reads the payload of a method frame; nil for an id that the protocol does not have.
func decodeMethod(payload []byte) (wire.Method, error) {
	id, args, _ := wire.SplitMethod(payload)
	m := wire.NewMethod(id)
	if m == nil {
		return nil, nil
	}
	return m, m.Decode(args)
}

// describe writes a frame as: channel method field=value ..., empty fields left out.
func describe(f wire.Frame) string {
	if f.Type != wire.FrameMethod {
		return fmt.Sprintf("%d %s of %d bytes", f.Channel, f.Type, len(f.Payload))
	}
	m, err := decodeMethod(f.Payload)
	if m == nil || err != nil {
		return fmt.Sprintf("%d undecodable method: %v", f.Channel, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", f.Channel, m.ID())
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		field := v.Field(i)
		if field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0 {
			continue
		}
		value := fmt.Sprint(field.Interface())
		switch x := field.Interface().(type) {
		case wire.Table:
			value = fmt.Sprint(x.Map())
		case []byte:
			value = string(x)
		}
		fmt.Fprintf(&b, " %s=%s", kebab(v.Type().Field(i).Name), value)
	}
	return b.String()
}

// kebab turns AutoDelete into auto-delete.
func kebab(s string) string {
	var b strings.Builder
	for i, r := range strings.ReplaceAll(s, "ID", "Id") {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// encodeLines encodes the lines of a send command.
func encodeLines(t testing.TB, text string) []byte {
	var out []byte
	for _, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 1 && words[0] == "heartbeat" {
			out = wire.AppendHeartbeat(out)
			continue
		}
		n, err := strconv.ParseUint(words[0], 10, 16)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		channel, args := uint16(n), words[2:]
		switch words[1] {
		case "header":
			size, set := propertySet(t, args)
			out = wire.AppendContentHeader(out, channel, wire.NewProperties(set), size)
		case "body":
			text := strings.Join(args, " ")
			out = wire.AppendFrameHead(out, wire.FrameBody, channel, len(text))
			out = append(append(out, text...), wire.FrameEnd)
		case "publish":
			out = encodePublish(t, out, channel, args)
		default:
			m := methodNamed(t, words[1])
			setFields(t, m, args)
			out = wire.AppendMethod(out, channel, m)
		}
	}
	return out
}

func methodNamed(t testing.TB, name string) wire.Method {
	for class := range wire.MethodID(100) {
		for method := range wire.MethodID(130) {
			if id := class<<16 | method; id.String() == name {
				return wire.NewMethod(id)
			}
		}
	}
	t.Fatalf("no method %q", name)
	return nil
}

// setFields sets fields of a method; a bit is set by its name alone, arguments
// are written args.<key>=<value>.
func setFields(t testing.TB, m wire.Method, args []string) {
	v := reflect.ValueOf(m).Elem()
	table := map[string]any{}
	for _, a := range args {
		key, value, has := strings.Cut(a, "=")
		if name, ok := strings.CutPrefix(key, "args."); ok {
			table[name] = argument(value)
			continue
		}
		var field reflect.Value
		for i := range v.NumField() {
			if kebab(v.Type().Field(i).Name) == key {
				field = v.Field(i)
			}
		}
		if !field.IsValid() {
			t.Fatalf("%s has no field %q", m.ID(), key)
		}
		switch field.Kind() {
		case reflect.Bool:
			field.SetBool(!has || value == "true")
		case reflect.String:
			field.SetString(value)
		case reflect.Slice:
			field.SetBytes([]byte(value))
		default:
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			field.SetUint(n)
		}
	}
	if len(table) > 0 {
		v.FieldByName("Arguments").Set(reflect.ValueOf(wire.NewTable(table)))
	}
}

func argument(text string) any {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return int32(n)
	}
	if b, err := strconv.ParseBool(text); err == nil {
		return b
	}
	return text
}

func propertySet(t testing.TB, args []string) (size uint64, set wire.PropertySet) {
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		n, _ := strconv.ParseUint(value, 10, 64)
		switch key {
		case "size":
			size = n
		case "delivery-mode":
			set.DeliveryMode = uint8(n)
		case "reply-to":
			set.ReplyTo = value
		case "user-id":
			set.UserID = value
		case "message-id":
			set.MessageID = value
		case "expiration":
			set.Expiration = value
		default:
			t.Fatalf("no property %q", key)
		}
	}
	return size, set
}

// encodePublish encodes a whole publish; fill=n makes a body of n bytes.
func encodePublish(t testing.TB, out []byte, channel uint16, args []string) []byte {
	m := &wire.BasicPublish{}
	var body []byte
	var properties []string
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "exchange":
			m.Exchange = []byte(value)
		case "key":
			m.RoutingKey = []byte(value)
		case "mandatory":
			m.Mandatory = true
		case "body":
			body = []byte(value)
		case "fill":
			n, _ := strconv.Atoi(value)
			body = bytes.Repeat([]byte("x"), n)
		default:
			properties = append(properties, a)
		}
	}
	_, set := propertySet(t, properties)
	out = wire.AppendMethod(out, channel, m)
	return wire.AppendContent(out, channel, wire.NewProperties(set), body, 4096)
}

// stall has the worker of a queue wait for until.
func (r *rig) stall(t *testing.T, queue string, until <-chan struct{}) {
	for h := range r.queues.All() {
		if h.Def().Name == queue {
			waits := make(chan struct{})
			h.Count(func(uint64, uint64, error) {
				close(waits)
				<-until
			})
			<-waits
			return
		}
	}
	t.Fatalf("no queue %s", queue)
}
