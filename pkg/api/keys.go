package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

//go:embed migrations
var migrations embed.FS

// A key is "tg_" + key id + "_" + secret: 16 hexadecimal digits that may be
// shown in lists and logs, and 256 random bits in base64url.
const (
	keyPrefix    = "tg_"
	keyIDLength  = 16
	secretBytes  = 32
	secretLength = 43
	keyLength    = len(keyPrefix) + keyIDLength + 1 + secretLength
)

// Migrate makes the tables of keys.
func Migrate(ctx context.Context, db *sqldb.DB) error {
	fsys, err := migrationFiles()
	if err != nil {
		return err
	}
	return db.Migrate(ctx, "api", fsys)
}

// Book is the list of apps and keys in SQL.
type Book struct {
	db  *sqldb.DB
	now func() time.Time
}

// NewBook opens the list; Migrate has made its tables. now may be nil for the
// real clock.
func NewBook(db *sqldb.DB, now func() time.Time) *Book {
	if now == nil {
		now = time.Now
	}
	return &Book{db: db, now: now}
}

// Add makes a key for an app and returns it with the key's text, which is
// shown this once and cannot be found again.
func (b *Book) Add(ctx context.Context, name string, scopes, accounts []string) (App, string, error) {
	return b.AddApp(ctx, App{Name: name, Scopes: scopes, Accounts: accounts})
}

// AddApp is Add with everything that a key may be limited to.
func (b *Book) AddApp(ctx context.Context, a App) (App, string, error) {
	a.CreatedAt, a.RevokedAt = b.now().UTC().Truncate(time.Millisecond), time.Time{}
	if err := a.check(); err != nil {
		return App{}, "", err
	}
	id := make([]byte, keyIDLength/2)
	secret := make([]byte, secretBytes)
	rand.Read(id) // crypto/rand never fails: it ends the process instead
	rand.Read(secret)
	a.KeyID = hex.EncodeToString(id)
	text := keyPrefix + a.KeyID + "_" + base64.RawURLEncoding.EncodeToString(secret)
	_, err := b.db.Exec(ctx, `INSERT INTO apps (key_id, name, key_hash, scopes, accounts, templates, developer, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		a.KeyID, a.Name, hashKey(text), strings.Join(a.Scopes, " "), strings.Join(a.Accounts, " "), strings.Join(a.Templates, " "), a.Developer, a.CreatedAt.UnixMilli())
	if err != nil {
		return App{}, "", err
	}
	return a, text, nil
}

// List gives every key, revoked ones too, by name and age.
func (b *Book) List(ctx context.Context) ([]App, error) {
	entries, err := b.read(ctx, "SELECT "+keyColumns+" FROM apps ORDER BY name, created_at, key_id")
	if err != nil {
		return nil, err
	}
	apps := make([]App, len(entries))
	for i, e := range entries {
		apps[i] = e.app
	}
	return apps, nil
}

// Revoke ends one key, by its key id, or every key of an app, by its name, and
// tells how many ended. Nodes stop taking them within KeyLife.
func (b *Book) Revoke(ctx context.Context, keyIDOrName string) (int, error) {
	n, err := b.db.Exec(ctx, `UPDATE apps SET revoked_at = $1 WHERE revoked_at = 0 AND (key_id = $2 OR name = $2)`,
		b.now().UnixMilli(), keyIDOrName)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, fault.New(fault.NotFound, "revoke key", "no valid key has the id or the app name %q: see the list of apps", keyIDOrName)
	}
	return int(n), nil
}

// entry is one key as it is checked.
type entry struct {
	app  App
	hash string
}

const keyColumns = "key_id, name, key_hash, scopes, accounts, templates, developer, created_at, revoked_at"

func (b *Book) read(ctx context.Context, q string, args ...any) ([]entry, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := b.db.Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []entry
	for rows.Next() {
		var e entry
		var scopes, accounts, templates string
		var created, revoked int64
		if err := rows.Scan(&e.app.KeyID, &e.app.Name, &e.hash, &scopes, &accounts, &templates, &e.app.Developer, &created, &revoked); err != nil {
			return nil, err
		}
		e.app.Scopes, e.app.Accounts = strings.Fields(scopes), strings.Fields(accounts)
		if templates != "" {
			e.app.Templates = strings.Fields(templates)
		}
		e.app.CreatedAt = time.UnixMilli(created).UTC()
		if revoked != 0 {
			e.app.RevokedAt = time.UnixMilli(revoked).UTC()
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// hashKey is a plain SHA-256: the key is 256 random bits, so there is nothing
// to guess that a slow hash would protect.
func hashKey(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

// splitKey finds the key id in a presented key; ok is false for anything that
// was never a key of ours.
func splitKey(text string) (id string, ok bool) {
	if len(text) != keyLength || !strings.HasPrefix(text, keyPrefix) {
		return "", false
	}
	id = text[len(keyPrefix) : len(keyPrefix)+keyIDLength]
	return id, text[len(keyPrefix)+keyIDLength] == '_'
}
