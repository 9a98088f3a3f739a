package wechatsim

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestJournalMemoryIsBoundedAndTheVerdictIsNot(t *testing.T) {
	b := newBot(t, ModePlain)
	cfg := testConfig(ModePlain)
	cfg.Journal.Entries = 10
	s := newSim(t, cfg, b)
	for range 20 {
		_, err := s.Act(t.Context(), "", Text(anyone(t, s), "x"))
		require.NoError(t, err)
	}
	newest, dropped := s.Journal().Len()
	require.EqualValues(t, 60, newest)
	require.EqualValues(t, 50, dropped)
	entries, next := s.Journal().Read(0, 100, nil)
	require.Len(t, entries, 10)
	require.EqualValues(t, 51, entries[0].Seq)
	require.EqualValues(t, 60, next)
	require.EqualValues(t, 20, s.Verdict(0).Callbacks.Acked)
}

// kept is a configuration whose journal is in a file.
func kept(t *testing.T, b *bot) Config {
	cfg := testConfig(ModePlain)
	cfg.Journal.File = filepath.Join(t.TempDir(), "journal.ndjson")
	cfg.Accounts[0].CallbackURL = b.server.URL
	return cfg
}

func TestVerdictSpansARestart(t *testing.T) {
	b := newBot(t, ModePlain)
	cfg := kept(t, b)
	first, err := New(cfg, zap.NewNop())
	require.NoError(t, err)
	user, mark := anyone(t, first), first.Mark()
	stim := Text(user, mark)
	stim.Token, stim.Wants = mark, 1
	_, err = first.Act(t.Context(), "", stim)
	require.NoError(t, err)
	token := stable(t, first, false).Token
	pushed := post(t, first, PathTemplateSend, token, templateTo(user, "T", "c1", someData))
	require.NoError(t, first.Close())

	second, err := New(cfg, zap.NewNop())
	require.NoError(t, err)
	require.EqualValues(t, 1, second.Verdict(0).Replies.Lost)
	require.Equal(t, 40001, post(t, second, PathCustomSend, token, textTo(user, mark)).Errcode, "tokens do not survive")
	token = stable(t, second, false).Token
	require.Zero(t, post(t, second, PathCustomSend, token, textTo(user, mark)).Errcode, "the window survives")
	again := post(t, second, PathTemplateSend, token, templateTo(user, "T", "c1", someData))
	require.Equal(t, pushed.MsgID, again.MsgID, "client_msg_id survives")
	v := second.Verdict(0)
	require.True(t, v.OK, "%+v", v)
	require.EqualValues(t, 1, v.Replies.Answered)
	require.EqualValues(t, 1, v.Pushes.Absorbed)
	entries, _ := second.Journal().Read(0, 1000, nil)
	for i, e := range entries[1:] {
		require.Greater(t, e.At, entries[i].At, "time goes on over the restart")
	}
	require.NoError(t, second.Close())
}

func TestCutOffDeliveriesAreClosedAtTheNextStart(t *testing.T) {
	b := newBot(t, ModePlain)
	cfg := kept(t, b)
	require.NoError(t, os.WriteFile(cfg.Journal.File, bytes.Join([][]byte{
		encodeJSON(Entry{Seq: 1, Kind: KindStimulus, At: 10, Account: testAppID, OpenID: "oX", What: "text", Stimulus: 1, Tokens: []string{mark('1')}, Wants: 1}),
		[]byte(`{"seq":2,"kind":"deliv`),
	}, nil), 0o600))
	s, err := New(cfg, zap.NewNop())
	require.NoError(t, err)
	v := s.Verdict(0)
	require.EqualValues(t, 1, v.Callbacks.Sent)
	require.Zero(t, v.Callbacks.InFlight)
	require.Zero(t, v.Replies.Lost)
	require.NoError(t, s.Close())
	f, err := os.Open(cfg.Journal.File)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	entries, _, err := ReadJournal(f)
	require.NoError(t, err, "the torn line is gone")
	require.Len(t, entries, 2)
}

func TestDamagedJournalIsRefused(t *testing.T) {
	b := newBot(t, ModePlain)
	for _, content := range []string{"{broken\n", string(encodeJSON(Entry{Seq: 5, Kind: KindNote}))} {
		cfg := kept(t, b)
		require.NoError(t, os.WriteFile(cfg.Journal.File, []byte(content), 0o600))
		_, err := New(cfg, zap.NewNop())
		require.ErrorContains(t, err, cfg.Journal.File)
	}
}

func TestFullJournalFileMakesTheVerdictIncomplete(t *testing.T) {
	b := newBot(t, ModePlain)
	cfg := kept(t, b)
	cfg.Journal.FileBytes = 200
	s := newSim(t, cfg, b)
	_, err := s.Act(t.Context(), "", Text(anyone(t, s), "x"))
	require.NoError(t, err)
	v := s.Verdict(0)
	require.False(t, v.Complete)
	require.Contains(t, v.Journal.FileError, "file_bytes")
}

func TestKeptJournalCanBeJudgedElsewhere(t *testing.T) {
	b := newBot(t, ModePlain)
	cfg := kept(t, b)
	s := newSim(t, cfg, b)
	_, err := s.Load(t.Context(), LoadSpec{Count: 5})
	require.NoError(t, err)
	raw, err := os.ReadFile(cfg.Journal.File)
	require.NoError(t, err)
	entries, _, err := ReadJournal(bytes.NewReader(raw))
	require.NoError(t, err)
	j := NewJudge(100)
	for _, e := range entries {
		j.Add(e)
	}
	v := j.Verdict(0, 0)
	require.EqualValues(t, 5, v.Replies.Lost)
	require.Equal(t, s.Verdict(0).Callbacks, v.Callbacks)
}

func TestIdleTellsWhatIsOutstanding(t *testing.T) {
	b := newBot(t, ModePlain)
	s := newSim(t, testConfig(ModePlain), b)
	_, err := s.Load(t.Context(), LoadSpec{Count: 2})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, s.Idle(ctx), "2 callbacks, replies, pushes or receipts are outstanding")
}
