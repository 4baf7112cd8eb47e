package session

import (
	"crypto/tls"
	"net"
	"strconv"
	"time"

	"holdfast/internal/broker"
)

// Info describes the connection for listings.
func (c *conn) Info() broker.ConnectionInfo {
	c.mu.Lock()
	channels, state := len(c.channels), ""
	if c.reason != nil {
		state = "closing"
	}
	c.mu.Unlock()
	if state == "" {
		state = c.block.state()
	}
	peerHost, peerPort := hostPort(c.socket.RemoteAddr())
	host, port := hostPort(c.socket.LocalAddr())
	version, cipher := c.tls()
	return broker.ConnectionInfo{
		TLSVersion: version, TLSCipher: cipher,
		Protocol: "AMQP 0-9-1", Mechanism: c.mechanism,
		PeerHost: peerHost, PeerPort: peerPort, Host: host, Port: port, TLS: c.secure,
		State: state, Channels: channels, ChannelMax: int(c.channelMax), FrameMax: int(c.frameMax),
		Heartbeat: int(c.heartbeat / time.Second), ClientProperties: c.client.table.Map(),
		ConnectedAt: c.connectedAt, ReceivedBytes: c.receivedBytes.Load(), SentBytes: c.sentBytes.Load(),
	}
}

// tls is what a TLS connection agreed on; empty for a plain one.
func (c *conn) tls() (version, cipher string) {
	t, ok := c.socket.(*tls.Conn)
	if !ok {
		return "", ""
	}
	agreed := t.ConnectionState()
	version = "tlsv1.2"
	if agreed.Version == tls.VersionTLS13 {
		version = "tlsv1.3"
	}
	return version, tls.CipherSuiteName(agreed.CipherSuite)
}

func hostPort(a net.Addr) (string, int) {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String(), 0
	}
	n, _ := strconv.Atoi(port)
	return host, n
}

// all returns the open channels.
func (c *conn) all() []*channel {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*channel, 0, len(c.channels))
	for _, ch := range c.channels {
		list = append(list, ch)
	}
	return list
}

// Channels describes the open channels for listings.
func (c *conn) Channels() []broker.ChannelInfo {
	list := []broker.ChannelInfo{}
	for _, ch := range c.all() {
		list = append(list, ch.info())
	}
	return list
}

func (ch *channel) info() broker.ChannelInfo {
	ch.mu.Lock()
	info := broker.ChannelInfo{
		Number: int(ch.number), Consumers: len(ch.consumers), Prefetch: ch.prefetch,
		Confirm: ch.confirms != nil, Transactional: ch.tx != nil,
	}
	confirms, tx := ch.confirms, ch.tx
	ch.mu.Unlock()
	if confirms != nil {
		info.Unconfirmed = uint64(confirms.unsettled())
	}
	if tx != nil {
		info.Uncommitted = uint64(tx.publishCount.Load())
		info.AcksUncommited = uint64(tx.ackCount.Load())
	}
	ch.flow.mu.Lock()
	info.Unacknowledged = uint64(ch.flow.unacked.count)
	info.GlobalPrefetch = ch.flow.limit
	ch.flow.mu.Unlock()
	return info
}

// count adds the connection's numbers to n.
func (c *conn) count(n *Counters) {
	n.ReceivedBytes += c.receivedBytes.Load()
	n.SentBytes += c.sentBytes.Load()
	if c.block.held() != nil {
		n.Blocked++
	}
	for _, ch := range c.all() {
		n.Channels++
		info := ch.info()
		n.Unacked += info.Unacknowledged
		n.Unconfirmed += info.Unconfirmed
		if confirms := ch.confirmed(); confirms != nil {
			acked, nacked := confirms.told()
			n.Confirmed += acked
			n.Nacked += nacked
		}
	}
}

func (ch *channel) confirmed() *confirms {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.confirms
}

// channelClosed keeps the numbers of a channel that has ended.
func (s *Server) channelClosed(ch *channel) {
	s.counters.channelsClosed.Add(1)
	if confirms := ch.confirmed(); confirms != nil {
		acked, nacked := confirms.told()
		s.counters.confirmed.Add(acked)
		s.counters.nacked.Add(nacked)
	}
}
