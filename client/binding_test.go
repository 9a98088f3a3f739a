package client_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/client"
)

func TestBindings(t *testing.T) {
	g := &gate{script: nil}
	g.script = append(g.script,
		answer(503, `{"errcode":"unavailable"}`, "Retry-After", "0"),
		answer(200, `{"account":"card","openid":"o 1","user":"77"}`),
		answer(200, `{"account":"card","openid":"o 1","user":"77"}`),
		answer(404, `{"errcode":"not_found","field":"openid"}`),
		answer(404, `{"errcode":"not_found"}`),
		answer(200, `{"openids":["o1","o2"]}`),
		answer(204, ""),
		answer(200, `{"erased":["dialogue"],"kept":["Kafka"]}`),
		answer(403, `{"errcode":"denied","detail":"the key lacks the scope"}`))
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	c, err := client.New("http://127.0.0.1:1", key, client.Options{BindingsURL: s.URL})
	require.NoError(t, err)

	require.NoError(t, c.Bind(t.Context(), "card", "o 1", "77"))
	user, err := c.Binding(t.Context(), "card", "o 1")
	require.NoError(t, err)
	require.Equal(t, "77", user)
	user, err = c.Binding(t.Context(), "card", "o 1")
	require.NoError(t, err, "not bound is an answer")
	require.Empty(t, user)
	_, err = c.Binding(t.Context(), "card", "o 1")
	require.ErrorContains(t, err, "404", "a gate that knows no bindings is none")
	list, err := c.Followers(t.Context(), "card", "a&b")
	require.NoError(t, err)
	require.Equal(t, []string{"o1", "o2"}, list)
	require.NoError(t, c.Unbind(t.Context(), "card", "o 1"))
	e, err := c.Erase(t.Context(), "card", "o 1")
	require.NoError(t, err)
	require.Equal(t, client.Erasure{Erased: []string{"dialogue"}, Kept: []string{"Kafka"}}, e)
	require.ErrorContains(t, c.Unbind(t.Context(), "card", "o 1"), "lacks the scope")

	asked, bodies := g.requests()
	require.Equal(t, "PUT /v1/accounts/card/bindings/o%201", asked[1].Method+" "+asked[1].URL.EscapedPath())
	require.JSONEq(t, `{"user":"77"}`, bodies[1])
	require.Equal(t, "user=a%26b", asked[5].URL.RawQuery)
	require.Equal(t, "DELETE /v1/accounts/card/users/o%201/data", asked[7].Method+" "+asked[7].URL.EscapedPath())
}
