package intake_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/api"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
)

// What a business system says about a message reaches the letter.
func TestCustomMessagesAndTimesReachTheLetter(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	from, to := noon.Add(time.Hour), noon.Add(2*time.Hour)
	a := d.post(body(t, map[string]any{
		"kind": "custom", "template_id": nil, "data": nil, "class": "prefer_loss",
		"content":    map[string]any{"type": "msgmenu", "menu": map[string]any{"head": "满意吗", "items": []any{map[string]any{"id": "1", "text": "是"}}}},
		"not_before": from.Format(time.RFC3339), "expires_at": to.Format(time.RFC3339), "callback_url": "https://crm.example/hook?x=1",
	}))
	require.Equal(t, http.StatusAccepted, a.Status, a.Detail)
	p := d.queue.all()[0].push
	require.Equal(t, wire.PushCustom, p.PushKind)
	require.Equal(t, &wire.Content{Type: "msgmenu", Menu: &wire.Menu{Head: "满意吗", Items: []wire.MenuItem{{ID: "1", Text: "是"}}}}, p.Content)
	require.Equal(t, wire.PreferLoss, p.Class)
	require.Equal(t, from.UnixMilli(), p.NotBefore)
	require.Equal(t, to.UnixMilli(), p.ExpiresAt)
	require.Equal(t, "https://crm.example/hook?x=1", p.CallbackURL)
	require.Empty(t, p.Data)
}

// A key may be limited to templates; then it sends nothing else.
func TestAKeySendsWithItsTemplatesOnly(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	_, key, err := d.book.AddApp(t.Context(), api.App{Name: "bills", Scopes: []string{api.PushesWrite}, Accounts: []string{"shop"}, Templates: []string{"T-bill", "T-due"}})
	require.NoError(t, err)
	auth := []string{"Authorization", "Bearer " + key}
	require.Equal(t, http.StatusAccepted, d.post(body(t, map[string]any{"template_id": "T-due"}), auth...).Status)
	a := d.post(body(t, nil), auth...)
	require.Equal(t, http.StatusForbidden, a.Status)
	require.Equal(t, "template_id", a.Field)
	a = d.post(body(t, map[string]any{"kind": "custom", "template_id": nil, "data": nil, "content": map[string]any{"type": "text", "text": "x"}}), auth...)
	require.Equal(t, http.StatusForbidden, a.Status)
	require.Equal(t, "kind", a.Field)
	require.Len(t, d.queue.all(), 1)
}
