package mgmt

import (
	"net/http"
	"net/url"
	"strings"
)

// router finds the handler of a method and path. The standard library's takes a segment that is %2F, the default virtual
// host, for the end of a path; here a segment is whatever stands between two slashes, decoded after it was taken out.
type router struct {
	routes []route
	other  http.Handler // where none matches
}

type route struct {
	method   string
	segments []string // {name} matches any segment
	handler  http.Handler
}

// handle adds a route, written as "GET /api/queues/{vhost}".
func (rt *router) handle(pattern string, h http.Handler) {
	method, path, _ := strings.Cut(pattern, " ")
	rt.routes = append(rt.routes, route{method, strings.Split(path, "/"), h})
}

// ServeHTTP sets the path values of the route and calls its handler.
func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segments := strings.Split(r.URL.EscapedPath(), "/")
	for i, segment := range segments {
		decoded, err := url.PathUnescape(segment)
		if err != nil {
			rt.other.ServeHTTP(w, r)
			return
		}
		segments[i] = decoded
	}
	for i := range rt.routes {
		if route := &rt.routes[i]; route.matches(r.Method, segments) {
			for j, s := range route.segments {
				if name, ok := wildcard(s); ok {
					r.SetPathValue(name, segments[j])
				}
			}
			route.handler.ServeHTTP(w, r)
			return
		}
	}
	rt.other.ServeHTTP(w, r)
}

func (rt *route) matches(method string, segments []string) bool {
	if method != rt.method || len(segments) != len(rt.segments) {
		return false
	}
	for i, s := range rt.segments {
		if _, any := wildcard(s); !any && s != segments[i] {
			return false
		}
	}
	return true
}

func wildcard(segment string) (name string, ok bool) {
	if strings.HasPrefix(segment, "{") {
		return strings.Trim(segment, "{}"), true
	}
	return "", false
}
