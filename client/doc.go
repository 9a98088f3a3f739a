// Package client is a Go client of Tidegate's public API: it pushes messages
// and reads what became of them.
//
//	c, err := client.New("https://gate.example.com", key, client.Options{})
//	got, err := c.Push(ctx, client.Push{
//		Account: "shop", OpenID: openid, TemplateID: id,
//		Data:           map[string]string{"thing1": "Your bill is ready"},
//		IdempotencyKey: "bill-4711",
//	})
//	m, err := c.Message(ctx, got.ID)
//
// What it promises: a push is repeated only with an idempotency key, which it
// makes up if the caller gives none, so that no repeat is a second message;
// repeats keep to Retry-After and end with the caller's context or after
// Options.Tries. What it does not: remember a key over a crash of the caller.
// A caller that must not send twice even then gives a key of its own, for
// instance the number of the bill.
//
// Refusals are *Problem with the field at fault. It uses nothing but the
// standard library.
package client
