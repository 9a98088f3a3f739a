package webhook

import (
	"net/http"
	"time"

	"tidegate/pkg/fault"
)

// CheckSecret says what is wrong with a secret, without quoting it.
func CheckSecret(secret string) error {
	_, err := parseSecret(secret)
	return err
}

// Sign gives the headers of a message that is no event of an app, signed in the
// same way.
func Sign(secret, id string, at time.Time, body []byte) (http.Header, error) {
	key, err := parseSecret(secret)
	if err != nil {
		return nil, fault.New(fault.Invalid, "sign webhook", "secret: %w", err).WithField("secret")
	}
	return sign([][]byte{key}, id, at, body), nil
}
