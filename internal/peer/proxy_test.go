package peer

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between two nodes and knows what each connection is for.
type proxy struct {
	addr string
	to   string

	mu    sync.Mutex
	moved *sync.Cond
	held  map[purpose]bool
	conns map[net.Conn]bool
	ended bool
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: ln.Addr().String(), to: to, held: map[purpose]bool{}, conns: map[net.Conn]bool{}}
	p.moved = sync.NewCond(&p.mu)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			work.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		p.cut()
		work.Wait()
	})
	return p
}

// serve carries one connection's bytes both ways.
func (p *proxy) serve(in net.Conn) {
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		in.Close()
		return
	}
	p.mu.Lock()
	p.conns[in], p.conns[out] = true, true
	ended := p.ended
	p.mu.Unlock()
	end := func() {
		in.Close()
		out.Close()
	}
	defer end()
	hello := make([]byte, helloHead)
	if _, err := io.ReadFull(in, hello); ended || err != nil {
		return
	}
	hello = append(hello, make([]byte, binary.LittleEndian.Uint32(hello[12:]))...)
	if _, err := io.ReadFull(in, hello[helloHead:]); err != nil {
		return
	}
	out.Write(hello)
	go func() {
		io.Copy(in, out)
		end()
	}()
	buf := make([]byte, 4<<10)
	for {
		p.mu.Lock()
		for p.held[purpose(hello[helloHead])] && !p.ended {
			p.moved.Wait()
		}
		p.mu.Unlock()
		n, err := in.Read(buf)
		if _, e := out.Write(buf[:n]); err != nil || e != nil {
			return
		}
	}
}

// hold keeps what connections for a purpose bring, or lets it go on.
func (p *proxy) hold(what purpose, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[what] = on
	p.moved.Broadcast()
}

// cut breaks every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		conn.Close()
	}
	clear(p.conns)
	p.moved.Broadcast()
}
