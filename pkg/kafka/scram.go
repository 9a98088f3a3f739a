package kafka

import (
	"github.com/xdg-go/scram"
)

// scramClient is one login conversation in the form that sarama asks for.
type scramClient struct {
	sha512 bool
	conv   *scram.ClientConversation
}

// Begin prepares the conversation; the authorization id stays empty for us.
func (s *scramClient) Begin(user, password, authzID string) error {
	gen := scram.SHA256
	if s.sha512 {
		gen = scram.SHA512
	}
	client, err := gen.NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	s.conv = client.NewConversation()
	return nil
}

// Step answers one challenge of the broker.
func (s *scramClient) Step(challenge string) (string, error) { return s.conv.Step(challenge) }

// Done tells that the broker has proved itself, too.
func (s *scramClient) Done() bool { return s.conv.Done() }
