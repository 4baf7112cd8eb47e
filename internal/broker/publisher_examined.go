package broker

import (
	"strconv"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// routeExamined is Route for a publish with properties that mean something to the broker.
func (p *Publisher) routeExamined(t *target, key []byte, properties wire.Properties) (Route, *amqperr.Error) {
	if id := properties.Bytes(wire.UserID); id != nil && !p.c.user.MaySignAs(string(id)) {
		return Route{}, amqperr.UserIDMismatch(string(id), p.c.user.Name)
	}
	if e := properties.Bytes(wire.Expiration); e != nil {
		if err := checkExpiration(string(e)); err != nil {
			return Route{}, err
		}
	}
	if t.exchange != nil && t.exchange.Type == catalog.Delayed && properties.Has(wire.Headers) {
		if problem := message.CheckDelay(properties); problem != "" {
			return Route{}, amqperr.InvalidDelay(message.DelayHeader, problem)
		}
	}
	headers := properties.Headers()
	if t.exchange != nil && t.exchange.Routes() == catalog.Deduplication {
		if problem := message.CheckCacheTTL(properties); problem != "" {
			return Route{}, amqperr.InvalidCacheTTL(message.CacheTTLHeader, problem)
		}
	}
	cc, hasCC := headers.Get("CC")
	bcc, hasBCC := headers.Get("BCC")
	if hasCC || hasBCC {
		return p.routeCopies(t, key, properties, cc, bcc)
	}
	r := p.route(t, key, properties)
	return Route{slots: r.slots, properties: properties, rare: r.rare, replied: r.replied, plain: plain(properties)}, nil
}

// routeCopies is route for a message with further keys in the CC and BCC headers. The keys go their ways together: each
// exchange sees the message once, and hands it to its alternate only if none of them leads anywhere.
func (p *Publisher) routeCopies(t *target, key []byte, properties wire.Properties, cc, bcc wire.Value) (Route, *amqperr.Error) {
	var further []string
	var hidden []byte
	for _, header := range []struct {
		name  string
		value wire.Value
	}{{"CC", cc}, {"BCC", bcc}} {
		if header.value.IsZero() {
			continue
		}
		if header.value.TypeName() != "array" {
			return Route{}, amqperr.InvalidCopies(header.name)
		}
		for v := range header.value.Array() {
			k, ok := v.Str()
			if !ok || v.Kind != 'S' {
				continue // as RabbitMQ does: only strings are keys
			}
			if header.name == "BCC" && p.view.Level() >= hiddenLevel {
				hidden = message.AppendHidden(hidden, []byte(k))
			}
			further = append(further, k)
		}
	}
	p.search(t, string(key), further, properties)
	r := Route{slots: p.loose.slots, properties: properties, rare: p.loose.rare, replied: p.loose.replied, plain: plain(properties)}
	if bcc.IsZero() {
		return r, nil
	}
	kept := wire.Table{}
	for name, v := range properties.Headers().All() {
		if name != "BCC" {
			kept = kept.AppendValue(name, v)
		}
	}
	r.properties, r.stripped = properties.WithHeaders(kept), true
	if len(hidden) > 0 {
		r.rare = &rare{r.rare.keepers(), hidden, r.rare.screened()}
	}
	return r, nil
}

// hiddenLevel is the level of formats from which on messages have hidden keys.
const hiddenLevel = 2

// checkExpiration checks a message's expiration: milliseconds, at most ten years, as text.
func checkExpiration(text string) *amqperr.Error {
	const most = 315_360_000_000 // ten years
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case n > most: // of a number beyond all bounds, n is the bound
		return amqperr.InvalidExpiration(text, "longer than ten years")
	case err != nil || n < 0:
		return amqperr.InvalidExpiration(text, "not a number of milliseconds")
	}
	return nil
}
