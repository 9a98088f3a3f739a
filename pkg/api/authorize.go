package api

import (
	"net/http"
	"strings"

	"tidegate/pkg/fault"
)

// Authorize lets requests through that bring a valid key with the scope; the
// handler finds the app with AppOf. The key is taken from the Authorization
// header and from nowhere else, since URLs end up in logs (S70). Answers: 401
// without a valid key, 403 without the scope, 503 when keys cannot be read.
func (k *Keys) Authorize(scope string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := bearer(r.Header)
		if !ok {
			WriteProblem(w, denied())
			return
		}
		app, err := k.Verify(r.Context(), text)
		if err != nil {
			WriteProblem(w, err)
			return
		}
		if !app.Has(scope) {
			WriteProblem(w, fault.New(fault.Denied, "check key", "the key %s of app %s lacks the scope %s", app.KeyID, app.Name, scope))
			return
		}
		next.ServeHTTP(w, r.WithContext(WithApp(r.Context(), app)))
	})
}

// bearer reads exactly one Authorization header; two of them would let two
// readers along the way see different keys.
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, text, found := strings.Cut(values[0], " ")
	return text, found && strings.EqualFold(scheme, "Bearer")
}
