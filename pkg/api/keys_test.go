package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a hand-driven clock.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func book(t *testing.T, db *sqldb.DB, c *clock) *api.Book {
	t.Helper()
	require.NoError(t, api.Migrate(t.Context(), db))
	return api.NewBook(db, c.now)
}

func TestKeyIsShownOnceAndStoredHashed(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		c := newClock()
		b := book(t, db, c)
		app, text, err := b.Add(t.Context(), "card-centre", api.DefaultScopes(), []string{"bank", "shop"})
		require.NoError(t, err)
		require.Contains(t, text, app.KeyID)

		var stored string
		require.NoError(t, db.QueryRow(t.Context(), "SELECT key_id || name || key_hash || scopes || accounts FROM apps").Scan(&stored))
		require.NotContains(t, stored, text[len("tg_")+17:])

		list, err := b.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []api.App{app}, list)
		got, err := api.NewKeys(b).Verify(t.Context(), text)
		require.NoError(t, err)
		require.Equal(t, app, got)
		require.True(t, got.May("bank"))
		require.False(t, got.May("other"))
	})
}

func TestWrongKeysAreDenied(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		b := book(t, db, newClock())
		_, text, err := b.Add(t.Context(), "a", api.DefaultScopes(), []string{"*"})
		require.NoError(t, err)
		keys := api.NewKeys(b)
		flip := func(i int) string {
			raw := []byte(text)
			raw[i] ^= 1
			return string(raw)
		}
		wrong := []string{"", "tg_", text + "x", text[:len(text)-1], strings.ToUpper(text), "tg_" + strings.Repeat("0", 16) + text[19:]}
		for i := range text {
			wrong = append(wrong, flip(i))
		}
		for _, w := range wrong {
			_, err := keys.Verify(t.Context(), w)
			require.ErrorIs(t, err, api.ErrNoKey, w)
			require.Equal(t, fault.Denied, fault.KindOf(err))
			require.NotContains(t, err.Error(), text)
		}
	})
}

func TestRevokedKeyStopsWithinKeyLife(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		c := newClock()
		b := book(t, db, c)
		_, one, err := b.Add(t.Context(), "a", api.DefaultScopes(), []string{"*"})
		require.NoError(t, err)
		keys := api.NewKeys(b)
		_, err = keys.Verify(t.Context(), one)
		require.NoError(t, err)

		// A key that was made since works at once, beside the old one.
		second, two, err := b.Add(t.Context(), "a", api.DefaultScopes(), []string{"*"})
		require.NoError(t, err)
		_, err = keys.Verify(t.Context(), two)
		require.NoError(t, err)

		n, err := b.Revoke(t.Context(), second.KeyID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		c.step(api.KeyLife)
		_, err = keys.Verify(t.Context(), two)
		require.ErrorIs(t, err, api.ErrNoKey)
		_, err = keys.Verify(t.Context(), one)
		require.NoError(t, err)

		_, err = b.Revoke(t.Context(), "a")
		require.NoError(t, err)
		_, err = b.Revoke(t.Context(), "a")
		require.Equal(t, fault.NotFound, fault.KindOf(err))
		c.step(api.KeyLife)
		_, err = keys.Verify(t.Context(), one)
		require.ErrorIs(t, err, api.ErrNoKey)
	})
}

func TestKeysOutliveTheDatabaseForAWhile(t *testing.T) {
	c := newClock()
	db, err := sqldb.Open(t.Context(), sqldbtest.SQLiteConfig(t))
	require.NoError(t, err)
	b := book(t, db, c)
	_, text, err := b.Add(t.Context(), "a", api.DefaultScopes(), []string{"*"})
	require.NoError(t, err)
	keys := api.NewKeys(b)
	_, err = keys.Verify(t.Context(), text)
	require.NoError(t, err)
	require.NoError(t, db.Close())

	c.step(api.Grace - time.Second)
	_, err = keys.Verify(t.Context(), text)
	require.NoError(t, err, "within the grace")
	_, err = keys.Verify(t.Context(), "tg_0123456789abcdef"+text[19:])
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "an unknown key may be a new one")
	c.step(2 * time.Second)
	_, err = keys.Verify(t.Context(), text)
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "after it")
}

func TestAppsAreCheckedBeforeTheyAreAdded(t *testing.T) {
	b := book(t, sqldbtest.OpenSQLite(t), newClock())
	for field, a := range map[string]api.App{
		"name":     {Name: "Has Space", Scopes: api.DefaultScopes(), Accounts: []string{"*"}},
		"scopes":   {Name: "a", Scopes: []string{"push:write"}, Accounts: []string{"*"}},
		"accounts": {Name: "a", Scopes: api.DefaultScopes(), Accounts: []string{"a b"}},
	} {
		_, _, err := b.Add(t.Context(), a.Name, a.Scopes, a.Accounts)
		require.Equal(t, fault.Invalid, fault.KindOf(err))
		require.Equal(t, field, fault.FieldOf(err))
	}
	_, _, err := b.Add(t.Context(), "a", nil, nil)
	require.Equal(t, fault.Invalid, fault.KindOf(err))
}

func TestAuthorize(t *testing.T) {
	b := book(t, sqldbtest.OpenSQLite(t), newClock())
	_, text, err := b.Add(t.Context(), "a", []string{api.MessagesRead}, []string{"*"})
	require.NoError(t, err)
	keys := api.NewKeys(b)
	reached := ""
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		app, ok := api.AppOf(r.Context())
		require.True(t, ok)
		reached = app.Name
		api.WriteJSON(w, http.StatusOK, map[string]string{"ok": "yes"})
	})
	call := func(scope string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/?access_token="+text, nil)
		r.Header.Set("X-Forwarded-For", "127.0.0.1")
		for _, h := range headers {
			r.Header.Add("Authorization", h)
		}
		w := httptest.NewRecorder()
		keys.Authorize(scope, inner).ServeHTTP(w, r)
		return w
	}
	require.Equal(t, http.StatusOK, call(api.MessagesRead, "bearer "+text).Code)
	require.Equal(t, "a", reached)
	reached = ""
	for _, headers := range [][]string{{}, {text}, {"Basic " + text}, {"Bearer x"}, {"Bearer " + text, "Bearer " + text}} {
		w := call(api.MessagesRead, headers...)
		require.Equal(t, http.StatusUnauthorized, w.Code, "%v", headers)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.NotEmpty(t, w.Header().Get("WWW-Authenticate"))
		require.Contains(t, w.Body.String(), `"errcode":"unauthenticated"`)
	}
	w := call(api.PushesWrite, "Bearer "+text)
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), api.PushesWrite)
	require.Empty(t, reached)
}

func TestVerifyFromManySides(t *testing.T) {
	c := newClock()
	b := book(t, sqldbtest.OpenSQLite(t), c)
	_, text, err := b.Add(t.Context(), "a", api.DefaultScopes(), []string{"*"})
	require.NoError(t, err)
	keys := api.NewKeys(b)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				_, err := keys.Verify(context.Background(), text)
				require.NoError(t, err)
				c.step(500 * time.Millisecond)
			}
		})
	}
	wg.Wait()
}
