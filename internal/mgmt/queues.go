package mgmt

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"holdfast/internal/broker"
	"holdfast/internal/wire"
)

func (s *Server) declareQueue(w http.ResponseWriter, r *http.Request) (any, error) {
	in := struct {
		Durable    bool
		AutoDelete bool `json:"auto_delete"`
		Arguments  map[string]any
	}{Durable: true}
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	arguments, err := table(in.Arguments)
	if err != nil {
		return nil, err
	}
	return nil, s.options.Broker.AdminDeclareQueue(broker.AdminQueue{
		VHost: r.PathValue("vhost"), Name: r.PathValue("queue"),
		Durable: in.Durable, AutoDelete: in.AutoDelete, Arguments: arguments,
	})
}

// table makes an AMQP table of JSON values: whole numbers become 64-bit integers.
func table(values map[string]any) (t wire.Table, err error) {
	numbers, err := plain(values)
	if err != nil {
		return nil, err
	}
	return wire.NewTable(numbers.(map[string]any)), nil
}

// plain turns the numbers of decoded JSON into integers, or floats where they have a fraction.
func plain(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, invalid("a number is out of range: " + v.String())
		}
		return f, nil
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			if len(key) > 255 {
				return nil, invalid("a name in a table is longer than 255 bytes")
			}
			p, err := plain(value)
			if err != nil {
				return nil, err
			}
			m[key] = p
		}
		return m, nil
	case []any:
		list := make([]any, len(v))
		for i, value := range v {
			p, err := plain(value)
			if err != nil {
				return nil, err
			}
			list[i] = p
		}
		return list, nil
	}
	return v, nil
}

// properties gives the numbers of properties as the broker takes them: as JSON's own, floats. Headers are a table.
func properties(values map[string]any) (map[string]any, error) {
	m := make(map[string]any, len(values))
	for name, value := range values {
		if n, ok := value.(json.Number); ok {
			f, err := n.Float64()
			if err != nil {
				return nil, invalid("a number is out of range: " + n.String())
			}
			m[name] = f
			continue
		}
		p, err := plain(value)
		if err != nil {
			return nil, err
		}
		m[name] = p
	}
	return m, nil
}

// removed is the answer to whatever takes messages away.
type removed struct {
	Messages uint64 `json:"messages"`
}

func (s *Server) deleteQueue(_ http.ResponseWriter, r *http.Request) (any, error) {
	ifUnused, err := flag(r, "if-unused")
	ifEmpty, err2 := flag(r, "if-empty")
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	n, err := s.options.Broker.AdminDeleteQueue(r.PathValue("vhost"), r.PathValue("queue"), ifUnused, ifEmpty)
	return removed{n}, about("queue", err)
}

func (s *Server) purgeQueue(_ http.ResponseWriter, r *http.Request) (any, error) {
	n, err := s.options.Broker.AdminPurgeQueue(r.PathValue("vhost"), r.PathValue("queue"))
	return removed{n}, about("queue", err)
}

// pauseQueue has nothing of a queue delivered any more; resumeQueue has it go on.
func (s *Server) pauseQueue(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, about("queue", s.options.Broker.AdminPauseQueue(r.PathValue("vhost"), r.PathValue("queue"), true))
}

func (s *Server) resumeQueue(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, about("queue", s.options.Broker.AdminPauseQueue(r.PathValue("vhost"), r.PathValue("queue"), false))
}

// discardQueue gives up the data of a quarantined queue. One that serves is left alone: delete_queue is for that.
func (s *Server) discardQueue(_ http.ResponseWriter, r *http.Request) (any, error) {
	queue, err := s.options.Broker.QueueInfo(r.PathValue("vhost"), r.PathValue("queue"))
	if err != nil {
		return nil, about("queue", err)
	}
	if queue.State != "quarantined" {
		return nil, &broker.AdminError{Kind: broker.Rejected, Text: fmt.Sprintf("Queue '%s' is not quarantined: it serves, and there is nothing to give up", queue.Name)}
	}
	return nil, s.options.Broker.DiscardGroup(queue.ID)
}

func (s *Server) discardGroup(_ http.ResponseWriter, r *http.Request) (any, error) {
	group, err := strconv.ParseUint(r.PathValue("group"), 10, 64)
	if err != nil {
		return nil, invalid("a group is a number")
	}
	return nil, about("group", s.options.Broker.DiscardGroup(group))
}

func (s *Server) publish(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		RoutingKey string `json:"routing_key"`
		Properties map[string]any
		Payload    string
		Encoding   string `json:"payload_encoding"`
	}
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	body := []byte(in.Payload)
	switch in.Encoding {
	case "base64":
		decoded, err := base64.StdEncoding.DecodeString(in.Payload)
		if err != nil {
			return nil, invalid("the payload is not base64")
		}
		body = decoded
	case "", "string":
	default:
		return nil, invalid("payload_encoding must be string or base64")
	}
	if uint64(len(body)) > uint64(s.options.Settings.MaxMessageSize) {
		return nil, invalid(fmt.Sprintf("the body has %d bytes; the most is %s", len(body), s.options.Settings.MaxMessageSize))
	}
	properties, err := properties(in.Properties)
	if err != nil {
		return nil, err
	}
	// Under an alarm publishers are held back; one that comes this way is refused, with the reason.
	if err := s.options.Broker.Health(); err != nil {
		return nil, err
	}
	exchange := r.PathValue("exchange")
	if exchange == "amq.default" {
		exchange = ""
	}
	queues, err := s.options.Broker.AdminPublish(broker.AdminPublish{
		VHost: r.PathValue("vhost"), Exchange: exchange, RoutingKey: in.RoutingKey,
		Properties: properties, Body: body,
	})
	return struct {
		Routed bool `json:"routed"`
		Queues int  `json:"queues"`
	}{queues > 0, queues}, about("exchange", err)
}

// mostMessages bounds what one request may fetch.
const mostMessages = 10_000

func (s *Server) get(w http.ResponseWriter, r *http.Request) (any, error) {
	in := struct {
		Count   int
		Requeue bool
	}{1, true}
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	if in.Count < 1 || in.Count > mostMessages {
		return nil, invalid(fmt.Sprintf("count must be 1 to %d", mostMessages))
	}
	messages, err := s.options.Broker.AdminGet(r.PathValue("vhost"), r.PathValue("queue"), in.Count, in.Requeue)
	return messages, about("queue", err)
}

func (s *Server) explain(_ http.ResponseWriter, r *http.Request) (any, error) {
	explanation, err := s.options.Broker.Explain(r.Context(), r.PathValue("vhost"), r.PathValue("queue"))
	return explanation, about("queue", err)
}
