# A session with bunny. Prints "ok NAME" or "not ok NAME: why" for each step.
require 'bunny'

URL = ARGV[0]

def connect(**more)
  Bunny.new(URL, log_level: Logger::FATAL, **more).start
end

def check(what, got, want)
  raise "#{what}: got #{got.inspect}, want #{want.inspect}" unless got == want
end

def fetch(queue, **options)
  100.times do
    info, properties, body = queue.pop(**options)
    return info, properties, body if info
    sleep 0.05
  end
  raise "queue #{queue.name} stays empty"
end

STEPS = {
  publish_with_confirms: lambda do |c|
    ch = c.create_channel
    ch.confirm_select
    q = ch.queue('bunny.confirms', exclusive: true)
    200.times { |i| q.publish(i.to_s, persistent: true) }
    check 'confirmed', ch.wait_for_confirms, true
    check 'nacked', ch.nacked_set.size, 0
    check 'messages', q.message_count, 200
  end,
  consume_and_ack: lambda do |c|
    ch = c.create_channel
    q = ch.queue('bunny.consume', exclusive: true)
    20.times { |i| q.publish(i.to_s) }
    got = Queue.new
    consumer = q.subscribe(manual_ack: true) { |info, _, body| ch.ack(info.delivery_tag); got << body.to_i }
    check 'got', Array.new(20) { got.pop }, (0...20).to_a
    consumer.cancel
    check 'messages', q.message_count, 0
  end,
  nack_and_reject: lambda do |c|
    ch = c.create_channel
    q = ch.queue('bunny.nack', exclusive: true)
    q.publish('a')
    info, = fetch(q, manual_ack: true)
    check 'redelivered', info.redelivered?, false
    ch.nack(info.delivery_tag, false, true)
    info, = fetch(q, manual_ack: true)
    check 'redelivered', info.redelivered?, true
    ch.reject(info.delivery_tag, false)
    check 'messages', q.message_count, 0
  end,
  exchange_kinds: lambda do |c|
    ch = c.create_channel
    [['direct', 'k', {}, {}, 'k'], ['fanout', '', {}, {}, 'whatever'], ['topic', 'a.#', {}, {}, 'a.b.c'],
     ['headers', '', { 'x-match' => 'all', 'a' => 1 }, { 'a' => 1 }, '']].each do |kind, key, arguments, headers, hit|
      x = Bunny::Exchange.new(ch, kind.to_sym, "bunny.#{kind}", auto_delete: true)
      q = ch.queue('', exclusive: true)
      q.bind(x, routing_key: key, arguments: arguments)
      x.publish('x', routing_key: hit, headers: headers)
      check 'body', fetch(q)[2], 'x'
      q.unbind(x, routing_key: key, arguments: arguments)
    end
  end,
  exchange_to_exchange: lambda do |c|
    ch = c.create_channel
    source, destination = ch.fanout('bunny.source', auto_delete: true), ch.fanout('bunny.destination', auto_delete: true)
    q = ch.queue('', exclusive: true).bind(destination)
    destination.bind(source)
    source.publish('x')
    check 'body', fetch(q)[2], 'x'
    destination.unbind(source)
  end,
  returns: lambda do |c|
    ch = c.create_channel
    returned = Queue.new
    x = ch.default_exchange
    x.on_return { |info, _, body| returned << [info.reply_code, body] }
    x.publish('back', routing_key: 'bunny.nowhere', mandatory: true)
    check 'returned', returned.pop, [312, 'back']
  end,
  transactions: lambda do |c|
    ch = c.create_channel
    q = ch.queue('bunny.tx', exclusive: true)
    ch.tx_select
    q.publish('rolled back')
    ch.tx_rollback
    q.publish('committed')
    ch.tx_commit
    check 'body', fetch(q)[2], 'committed'
  end,
  prefetch: lambda do |c|
    ch = c.create_channel
    ch.prefetch(2)
    q = ch.queue('bunny.prefetch', exclusive: true)
    5.times { |i| q.publish(i.to_s) }
    got = Queue.new
    q.subscribe(manual_ack: true) { |info, _, _| got << info.delivery_tag }
    tags = [got.pop, got.pop]
    sleep 0.2
    check 'beyond the prefetch', got.size, 0
    ch.ack(tags[1], true)
    got.pop
    got.pop
  end,
  properties_round_trip: lambda do |c|
    ch = c.create_channel
    q = ch.queue('bunny.properties', exclusive: true)
    headers = { 's' => 'text', 'i' => 7, 'b' => true, 'f' => 1.5, 'list' => [1, 2], 'table' => { 'k' => 'v' }, 'none' => nil }
    time = Time.at(1_700_000_000)
    q.publish('body', headers: headers, content_type: 'text/plain', priority: 4, correlation_id: 'c', reply_to: 'r', message_id: 'm',
                      timestamp: time.to_i, type: 't', app_id: 'a', persistent: true)
    _, p, = fetch(q)
    check 'headers', p.headers, headers
    check 'rest', [p.content_type, p.priority, p.correlation_id, p.reply_to, p.message_id, p.timestamp, p.type, p.app_id, p.delivery_mode],
          ['text/plain', 4, 'c', 'r', 'm', time, 't', 'a', 2]
  end,
  errors: lambda do |c|
    { Bunny::NotFound => ->(ch) { ch.queue('bunny.missing', passive: true) },
      Bunny::AccessRefused => ->(ch) { ch.queue('amq.bunny') },
      Bunny::PreconditionFailed => ->(ch) { ch.queue('bunny.twice', exclusive: true); c.create_channel.queue('bunny.twice', exclusive: true, auto_delete: true) } }.each do |error, act|
      begin
        act.call(c.create_channel)
        raise "no #{error}"
      rescue error
        nil
      end
    end
    check 'open', c.open?, true
  end,
  cancelled_by_the_broker: lambda do |c|
    ch = c.create_channel
    q = ch.queue('bunny.cancelled')
    cancelled = Queue.new
    q.subscribe(on_cancellation: ->(_) { cancelled << true }) { nil }
    c.create_channel.queue_delete('bunny.cancelled')
    check 'cancelled', cancelled.pop, true
  end,
  reconnect: lambda do |c|
    ch = c.create_channel
    ch.confirm_select
    q = ch.queue('bunny.reconnect', durable: true)
    q.publish('x', persistent: true)
    ch.wait_for_confirms
    fetch(q, manual_ack: true)
    c.close
    again = connect
    q = again.create_channel.queue('bunny.reconnect', durable: true)
    info, = fetch(q)
    check 'redelivered', info.redelivered?, true
    q.delete
    again.close
  end
}.freeze

STEPS.each do |name, step|
  begin
    c = connect
    Timeout.timeout(30) { step.call(c) }
    puts "ok #{name}"
  rescue StandardError, Timeout::Error => e
    puts "not ok #{name}: #{e.class} #{e.message}"
  ensure
    c.close if c && c.open?
  end
end
