package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// managementPort is where amqp091-go's recovery tests look for the management
// API, to end a connection as an operator does.
const managementPort = 15672

// managementStandIn gives those tests what they ask for: the list of connections
// and the end of one. For our broker it passes the two requests on to the local
// socket in the data folder; a peer has the API itself, ten thousand above its
// AMQP port. The copy of the tests in src is changed to the port in use.
func managementStandIn(src string, b *broker) (closed func(), err error) {
	nothing := func() {}
	if _, err := os.Stat(filepath.Join(src, "recovery_test.go")); err != nil {
		return nothing, nil
	}
	var port string
	if b.own == nil {
		_, amqp, err := net.SplitHostPort(b.addr)
		if err != nil {
			return nothing, err
		}
		n, err := strconv.Atoi(amqp)
		if err != nil {
			return nothing, err
		}
		port = strconv.Itoa(n + 10000)
	} else {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nothing, err
		}
		server := &http.Server{Handler: &standIn{socket: filepath.Join(b.own.Data, "ctl.sock")}}
		go func() { _ = server.Serve(l) }()
		closed = func() { _ = server.Close() }
		_, port, _ = net.SplitHostPort(l.Addr().String())
	}
	if closed == nil {
		closed = nothing
	}
	for _, file := range []string{"recovery_test.go", filepath.Join("internal", "utils", "http.go")} {
		path := filepath.Join(src, file)
		if err := replaceIn(path, strconv.Itoa(managementPort), port); err != nil {
			return closed, err
		}
		if err := replaceIn(path, "http://localhost:", "http://127.0.0.1:"); err != nil {
			return closed, err
		}
	}
	return closed, nil
}

// standIn answers the two requests from the broker's local socket.
type standIn struct{ socket string }

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	local := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
		},
	}}
	name := strings.Trim(strings.TrimPrefix(r.URL.EscapedPath(), "/api/connections"), "/")
	target := "http://local/api/connections"
	if name != "" {
		decoded, err := url.PathUnescape(name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		target += "/" + url.PathEscape(decoded)
	}
	request, err := http.NewRequest(r.Method, target, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := local.Do(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	if r.Method == http.MethodGet {
		var connections []map[string]any
		if err := json.NewDecoder(answer.Body).Decode(&connections); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(connections)
		return
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}
