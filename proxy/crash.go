package proxy

import (
	"net/http"
	"strconv"

	"tidegate/pkg/crash"
)

// sentAtOnce makes crash point CP5 (answer sent, mark not finalised) possible:
// net/http sends a small answer only when its handler has returned. Nothing of
// it is in a release.
func sentAtOnce(h http.Handler) http.Handler {
	if !crash.Enabled {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(crashWriter{w}, r) })
}

// crashWriter sends the whole answer with its one Write.
type crashWriter struct{ http.ResponseWriter }

func (w crashWriter) Write(b []byte) (int, error) {
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	n, err := w.ResponseWriter.Write(b)
	if err != nil {
		return n, err
	}
	return n, http.NewResponseController(w.ResponseWriter).Flush()
}
