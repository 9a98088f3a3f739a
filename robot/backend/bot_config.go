package backend

import (
	"unicode/utf8"

	"tidegate/pkg/wechat"
)

// Types of back ends.
const (
	// TypeHTTP takes and gives JSON.
	TypeHTTP = "http"
	// TypeWeChat is a bot that has been answering WeChat's callbacks until now
	// (robot/backend/bot).
	TypeWeChat = "wechat"
)

// MaxPassive is how many bytes of a bot's answer are read unless max_response
// says otherwise. The longest text and eight articles stay below it.
const MaxPassive = 64 << 10

// BotConfig is what a bot has been told about its account: the settings of its
// own callback, which need not be those of the account any more.
type BotConfig struct {
	// Token signs what the bot is asked.
	Token string `koanf:"token" secret:"true"`
	// AppID and EncodingAESKey are needed in mode safe and compatible.
	AppID          string `koanf:"app_id"`
	EncodingAESKey string `koanf:"encoding_aes_key" secret:"true"`
	// Mode is plain, compatible or safe (the default), as the bot expects it.
	Mode wechat.Mode `koanf:"mode"`
	// TransferText is sent when the bot hands a user over to the human desk,
	// which only the acknowledgement can do. Empty sends nothing.
	TransferText string `koanf:"transfer_text"`
}

// Credentials are the settings for pkg/wechat.
func (b BotConfig) Credentials() wechat.Credentials {
	return wechat.Credentials{AppID: b.AppID, Token: b.Token, EncodingAESKey: b.EncodingAESKey, Mode: b.Mode}
}

func (c Config) validateType() error {
	switch c.Type {
	case TypeHTTP:
		if c.Bot != (BotConfig{}) {
			return invalid("bot", "it belongs to a back end of type wechat: set type: wechat, or remove it")
		}
		return nil
	case TypeWeChat:
	default:
		return invalid("type", "%q: use http, or wechat for a bot that answers WeChat today", c.Type)
	}
	if _, err := wechat.NewForwarder(c.Bot.Credentials()); err != nil {
		return invalid("bot", "%w", err)
	}
	if len(c.Bot.TransferText) > wechat.MaxText || !utf8.ValidString(c.Bot.TransferText) {
		return invalid("bot.transfer_text", "it has %d bytes: use up to %d of UTF-8", len(c.Bot.TransferText), wechat.MaxText)
	}
	return nil
}
