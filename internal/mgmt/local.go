package mgmt

import (
	"net/http"
	"net/http/pprof"
	"strings"
)

// localAPI is everything that ctl may ask. Each name is one segment of the path, percent-encoded: a name may hold a slash
// or anything else. The default exchange, whose name is empty, is amq.default in a path.
func (s *Server) localAPI() http.Handler {
	api := &router{other: s.answered(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return nil, invalid("there is no " + r.Method + " " + r.URL.Path)
	})}
	for _, routes := range []map[string]handler{s.routes(), s.quorumRoutes(), s.policyRoutes(), s.markRoutes()} {
		for pattern, h := range routes {
			api.handle(pattern, s.answered(h))
		}
	}
	api.handle("GET /api/settings", http.HandlerFunc(s.settings))
	api.handle("POST /api/queues/{vhost}/{queue}/redrive", http.HandlerFunc(s.redrive))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.EscapedPath(), "/debug/") {
			mux.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// routes names every request of the API. No two match the same path.
func (s *Server) routes() map[string]handler {
	return map[string]handler{
		"GET /api/overview": s.overview,
		"GET /api/health":   s.health,
		"GET /api/cluster":  s.cluster,

		"GET /api/queues":                     s.listAllQueues,
		"GET /api/queues/{vhost}":             s.listQueues,
		"GET /api/queues/{vhost}/{queue}":     s.queue,
		"GET /api/exchanges/{vhost}":          s.listExchanges,
		"GET /api/bindings/{vhost}":           s.listBindings,
		"GET /api/consumers/{vhost}":          s.listConsumers,
		"GET /api/connections":                s.listConnections,
		"GET /api/channels":                   s.listChannels,
		"GET /api/users":                      s.listUsers,
		"GET /api/users/{user}/permissions":   s.listUserPermissions,
		"GET /api/vhosts":                     s.listVHosts,
		"GET /api/vhosts/{vhost}/permissions": s.listPermissions,

		"POST /api/users":                                s.addUser,
		"DELETE /api/users/{user}":                       s.deleteUser,
		"PUT /api/users/{user}/password":                 s.changePassword,
		"PUT /api/users/{user}/tags":                     s.setTags,
		"POST /api/users/{user}/authenticate":            s.authenticate,
		"POST /api/vhosts":                               s.addVHost,
		"DELETE /api/vhosts/{vhost}":                     s.deleteVHost,
		"PUT /api/vhosts/{vhost}/permissions/{user}":     s.setPermissions,
		"DELETE /api/vhosts/{vhost}/permissions/{user}":  s.clearPermissions,
		"PUT /api/queues/{vhost}/{queue}":                s.declareQueue,
		"DELETE /api/queues/{vhost}/{queue}":             s.deleteQueue,
		"DELETE /api/queues/{vhost}/{queue}/contents":    s.purgeQueue,
		"PUT /api/queues/{vhost}/{queue}/pause":          s.pauseQueue,
		"DELETE /api/queues/{vhost}/{queue}/pause":       s.resumeQueue,
		"DELETE /api/queues/{vhost}/{queue}/data":        s.discardQueue,
		"POST /api/queues/{vhost}/{queue}/get":           s.get,
		"GET /api/queues/{vhost}/{queue}/explain":        s.explain,
		"POST /api/exchanges/{vhost}/{exchange}/publish": s.publish,
		"DELETE /api/groups/{group}":                     s.discardGroup,
		"DELETE /api/connections/{connection}":           s.closeConnection,
		"DELETE /api/connections":                        s.closeAllConnections,
	}
}
