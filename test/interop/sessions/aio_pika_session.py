"""A session with aio-pika. Prints "ok NAME" or "not ok NAME: why" for each step.

Debian's package is for Debian's interpreter: run it with /usr/bin/python3.
"""
import asyncio
import sys
import traceback

import aio_pika
from aio_pika import DeliveryMode, ExchangeType, Message

URL = sys.argv[1]


async def publish_with_confirms(connection):
    ch = await connection.channel(publisher_confirms=True)
    queue = await ch.declare_queue("aio.confirms", exclusive=True)
    await asyncio.gather(*[
        ch.default_exchange.publish(Message(b"%d" % i, delivery_mode=DeliveryMode.PERSISTENT), queue.name) for i in range(200)
    ])
    again = await ch.declare_queue("aio.confirms", passive=True)
    assert again.declaration_result.message_count == 200


async def consume_and_ack(connection):
    ch = await connection.channel()
    queue = await ch.declare_queue("aio.consume", exclusive=True)
    for i in range(20):
        await ch.default_exchange.publish(Message(b"%d" % i), queue.name)
    got = []
    async with queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                got.append(int(message.body))
            if len(got) == 20:
                break
    assert got == list(range(20)), got


async def nack_and_reject(connection):
    ch = await connection.channel()
    queue = await ch.declare_queue("aio.nack", exclusive=True)
    await ch.default_exchange.publish(Message(b"a"), queue.name)
    message = await queue.get()
    assert not message.redelivered
    await message.nack(requeue=True)
    message = await queue.get()
    assert message.redelivered
    await message.reject(requeue=False)
    assert await queue.get(fail=False) is None


async def exchange_kinds(connection):
    ch = await connection.channel()
    for kind, key, arguments, headers, hit in [
        (ExchangeType.DIRECT, "k", None, None, "k"),
        (ExchangeType.FANOUT, "", None, None, "whatever"),
        (ExchangeType.TOPIC, "a.*.#", None, None, "a.b.c"),
        (ExchangeType.HEADERS, "", {"x-match": "any", "a": 1}, {"a": 1}, ""),
    ]:
        exchange = await ch.declare_exchange("aio." + kind.value, kind, auto_delete=True)
        queue = await ch.declare_queue(exclusive=True)
        await queue.bind(exchange, key, arguments=arguments)
        await exchange.publish(Message(b"x", headers=headers), hit)
        message = await queue.get(timeout=10)
        assert (message.exchange, message.routing_key) == ("aio." + kind.value, hit)
        await message.ack()


async def returns(connection):
    ch = await connection.channel(publisher_confirms=True, on_return_raises=True)
    try:
        await ch.default_exchange.publish(Message(b"back"), "aio.nowhere", mandatory=True)
    except aio_pika.exceptions.DeliveryError as e:
        assert "312" in repr(e) or "NO_ROUTE" in repr(e), repr(e)
    else:
        raise AssertionError("not returned")


async def transactions(connection):
    ch = await connection.channel(publisher_confirms=False)
    queue = await ch.declare_queue("aio.tx", exclusive=True)
    tx = ch.transaction()
    await tx.select()
    await ch.default_exchange.publish(Message(b"rolled back"), queue.name)
    await tx.rollback()
    await ch.default_exchange.publish(Message(b"committed"), queue.name)
    await tx.commit()
    message = await queue.get(timeout=10)
    assert message.body == b"committed"


async def prefetch(connection):
    ch = await connection.channel()
    await ch.set_qos(prefetch_count=2)
    queue = await ch.declare_queue("aio.prefetch", exclusive=True)
    for i in range(5):
        await ch.default_exchange.publish(Message(b"%d" % i), queue.name)
    got = asyncio.Queue()
    await queue.consume(got.put)
    first, second = [await asyncio.wait_for(got.get(), 10) for _ in range(2)]
    await asyncio.sleep(0.2)
    assert got.empty()
    await first.ack()
    assert (await asyncio.wait_for(got.get(), 10)).body == b"2"


async def properties_round_trip(connection):
    ch = await connection.channel()
    queue = await ch.declare_queue("aio.properties", exclusive=True)
    headers = {"s": "text", "i": 7, "b": True, "list": [1, 2], "table": {"k": "v"}}
    await ch.default_exchange.publish(
        Message("grüße".encode(), headers=headers, content_type="text/plain", correlation_id="c", message_id="m", priority=3,
                reply_to="r", app_id="a", type="t"), queue.name)
    m = await queue.get(timeout=10)
    assert (m.body.decode(), m.headers, m.content_type, m.correlation_id, m.message_id, m.priority, m.reply_to, m.app_id, m.type) == (
        "grüße", headers, "text/plain", "c", "m", 3, "r", "a", "t"), m


async def errors(connection):
    ch = await connection.channel()
    try:
        await ch.declare_queue("aio.missing", passive=True)
    except aio_pika.exceptions.ChannelNotFoundEntity:
        pass
    else:
        raise AssertionError("no error")
    await (await connection.channel()).declare_queue(exclusive=True)


async def reconnect(connection):
    ch = await connection.channel()
    queue = await ch.declare_queue("aio.reconnect", durable=True)
    await ch.default_exchange.publish(Message(b"x", delivery_mode=DeliveryMode.PERSISTENT), queue.name)
    await queue.get()
    await connection.close()
    again = await aio_pika.connect_robust(URL)
    async with again:
        ch = await again.channel()
        queue = await ch.declare_queue("aio.reconnect", durable=True)
        message = await queue.get(timeout=10)
        assert message.redelivered and message.body == b"x"
        await message.ack()
        await queue.delete()


async def reply_to(connection):
    ch = await connection.channel()
    rpc = await aio_pika.patterns.RPC.create(ch)

    async def double(*, n):
        return 2 * n

    await rpc.register("aio.double", double, auto_delete=True)
    assert await rpc.call("aio.double", {"n": 21}) == 42
    await rpc.close()


async def main():
    for step in [publish_with_confirms, consume_and_ack, nack_and_reject, exchange_kinds, returns, transactions, prefetch,
                 properties_round_trip, errors, reconnect, reply_to]:
        connection = await aio_pika.connect_robust(URL)
        try:
            await asyncio.wait_for(step(connection), 30)
            print("ok", step.__name__)
        except Exception as e:
            print("not ok %s: %s" % (step.__name__, repr(e)))
            traceback.print_exc()
        finally:
            await connection.close()


asyncio.run(main())
