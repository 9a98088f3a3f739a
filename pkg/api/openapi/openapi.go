// Package openapi holds the description of the public API (OpenAPI 3.1), which the
// sender serves at GET /v1/openapi.json.
//
// Invariant: what it says is what the handlers do. The tests of the rooms hold every
// answer of their scenarios against it (openapitest): an answer that it does not have
// is an error, and one that it has and no scenario brings is one too.
package openapi

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var document []byte

// Document is the description as JSON. The caller must not change it.
func Document() []byte { return document }

// Handler serves the description. It needs no key: it holds no secret, and a caller
// wants it before it has one.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "max-age=300")
		_, _ = w.Write(document) // the client went away: nobody is left to tell
	})
}
