package broker

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counters count what happens in the broker, apart from messages: those are
// counted by queues and publishers.
type counters struct {
	connectionsOpened, connectionsClosed atomic.Uint64
	queuesDeclared, queuesDeleted        atomic.Uint64
	logins, loginsRefused                atomic.Uint64
	published, routed                    atomic.Uint64 // added to by Publisher.Flush
	unroutableDropped                    atomic.Uint64
	unroutableReturned                   atomic.Uint64
}

// metric is one number shown under a name of rabbitmq_prometheus.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*Broker) float64
}

func counted(name, help string, of func(*counters) *atomic.Uint64) metric {
	return metric{
		prometheus.NewDesc("rabbitmq_"+name, help, nil, nil), prometheus.CounterValue,
		func(b *Broker) float64 { return float64(of(&b.counters).Load()) },
	}
}

func gauge(name, help string, read func(*Broker) float64) metric {
	return metric{prometheus.NewDesc("rabbitmq_"+name, help, nil, nil), prometheus.GaugeValue, read}
}

var metrics = []metric{
	counted("connections_opened_total", "Connections opened.", func(c *counters) *atomic.Uint64 { return &c.connectionsOpened }),
	counted("connections_closed_total", "Connections closed.", func(c *counters) *atomic.Uint64 { return &c.connectionsClosed }),
	counted("queues_declared_total", "Queues declared that were not there before.", func(c *counters) *atomic.Uint64 { return &c.queuesDeclared }),
	counted("queues_deleted_total", "Queues deleted.", func(c *counters) *atomic.Uint64 { return &c.queuesDeleted }),
	counted("auth_attempts_total", "Logins attempted.", func(c *counters) *atomic.Uint64 { return &c.logins }),
	counted("auth_attempts_failed_total", "Logins refused.", func(c *counters) *atomic.Uint64 { return &c.loginsRefused }),
	counted("global_messages_received_total", "Messages published by clients.", func(c *counters) *atomic.Uint64 { return &c.published }),
	counted("global_messages_routed_total", "Messages routed, once per queue.", func(c *counters) *atomic.Uint64 { return &c.routed }),
	counted("global_messages_unroutable_dropped_total", "Messages that no queue got.", func(c *counters) *atomic.Uint64 { return &c.unroutableDropped }),
	counted("global_messages_unroutable_returned_total", "Mandatory messages that no queue got.", func(c *counters) *atomic.Uint64 { return &c.unroutableReturned }),
	gauge("connections", "Connections open.", func(b *Broker) float64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return float64(len(b.conns))
	}),
	gauge("alarms_memory_used_watermark", "1 while the memory alarm is on.", func(b *Broker) float64 { return b.alarmOn(AlarmMemory) }),
	gauge("alarms_free_disk_space_watermark", "1 while the disk alarm is on.", func(b *Broker) float64 { return b.alarmOn(AlarmDisk) }),
}

func (b *Broker) alarmOn(kind AlarmKind) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, on := b.alarms[kind]; on {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (b *Broker) Describe(to chan<- *prometheus.Desc) {
	for _, m := range metrics {
		to <- m.desc
	}
	describeQueues(to)
}

// Collect implements prometheus.Collector: everything is summed up when it is asked for.
func (b *Broker) Collect(to chan<- prometheus.Metric) {
	for _, m := range metrics {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.read(b))
	}
	b.collectQueues(to)
}

var (
	queuesDesc     = prometheus.NewDesc("rabbitmq_queues", "Queues.", nil, nil)
	consumersDesc  = prometheus.NewDesc("rabbitmq_consumers", "Consumers.", nil, nil)
	readyDesc      = prometheus.NewDesc("rabbitmq_queue_messages_ready", "Messages ready to be delivered.", nil, nil)
	unackedDesc    = prometheus.NewDesc("rabbitmq_queue_messages_unacked", "Messages delivered and not yet acknowledged.", nil, nil)
	messagesDesc   = prometheus.NewDesc("rabbitmq_queue_messages", "Messages ready and unacknowledged.", nil, nil)
	publishedDesc  = prometheus.NewDesc("rabbitmq_queue_messages_published_total", "Messages published into queues that are there.", nil, nil)
	deliveredDesc  = prometheus.NewDesc("rabbitmq_queue_messages_delivered_total", "Messages delivered by queues that are there.", nil, nil)
	ackedDesc      = prometheus.NewDesc("rabbitmq_queue_messages_acked_total", "Messages acknowledged in queues that are there.", nil, nil)
	redeliverDesc  = prometheus.NewDesc("rabbitmq_queue_messages_redelivered_total", "Messages redelivered by queues that are there.", nil, nil)
	quarantineDesc = prometheus.NewDesc("rabbitmq_queues_quarantined", "Queues that cannot serve because their data was found damaged.", nil, nil)
)

func describeQueues(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		queuesDesc, consumersDesc, readyDesc, unackedDesc, messagesDesc,
		publishedDesc, deliveredDesc, ackedDesc, redeliverDesc, quarantineDesc,
	} {
		to <- d
	}
}

// collectQueues sums up over all queues of the node.
func (b *Broker) collectQueues(to chan<- prometheus.Metric) {
	var queues, consumers, ready, unacked, published, delivered, acked, redelivered, quarantined uint64
	for h := range b.queues.All() {
		queues++
		if h.Unavailable() != nil {
			quarantined++
			continue
		}
		s := h.Stats()
		consumers += s.Consumers
		ready += s.Ready
		unacked += s.Unacked
		published += s.Published
		delivered += s.Delivered
		acked += s.Acked
		redelivered += s.Redelivered
	}
	for _, v := range []struct {
		desc *prometheus.Desc
		kind prometheus.ValueType
		n    uint64
	}{
		{queuesDesc, prometheus.GaugeValue, queues},
		{consumersDesc, prometheus.GaugeValue, consumers},
		{readyDesc, prometheus.GaugeValue, ready},
		{unackedDesc, prometheus.GaugeValue, unacked},
		{messagesDesc, prometheus.GaugeValue, ready + unacked},
		{publishedDesc, prometheus.CounterValue, published},
		{deliveredDesc, prometheus.CounterValue, delivered},
		{ackedDesc, prometheus.CounterValue, acked},
		{redeliverDesc, prometheus.CounterValue, redelivered},
		{quarantineDesc, prometheus.GaugeValue, quarantined},
	} {
		to <- prometheus.MustNewConstMetric(v.desc, v.kind, float64(v.n))
	}
}
