"""Fields that change neither parameters, nor FLOPs, nor a cache."""

from __future__ import annotations

import re

_NAMES = frozenset(
    """
    _name_or_path architectures auto_map model_type transformers_version torch_dtype dtype use_cache use_return_dict
    return_dict return_dict_in_generate id2label label2id problem_type finetuning_task task_specific_params
    chunk_size_feed_forward is_decoder is_encoder_decoder max_length min_length do_sample num_beams temperature top_k
    top_p repetition_penalty length_penalty early_stopping no_repeat_ngram_size max_position_embeddings n_ctx
    n_positions max_seq_len max_sequence_length model_max_length max_target_positions max_source_positions
    original_max_position_embeddings pretraining_tp use_flash_attention use_flash_attn attn_implementation
    _attn_implementation attention_softmax_in_fp32 scale_attention_softmax_in_fp32 scale_attn_weights
    scale_attn_by_inverse_layer_idx reorder_and_upcast_attn norm_topk_prob routed_scaling_factor router_aux_loss_coef
    router_z_loss_coef router_jitter_noise input_jitter_noise output_router_logits scoring_func topk_method n_group
    topk_group aux_loss_alpha seq_aux gradient_checkpointing tie_encoder_decoder hidden_act hidden_activation
    activation_function activation activation_type logit_scale logits_scaling embedding_multiplier residual_multiplier
    attention_multiplier mup_multiplier query_pre_attn_scalar attention_scaling alibi swiglu_limit clip_qkv
    quantization_config bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id
    forced_bos_token_id forced_eos_token_id prefix bad_words_ids begin_suppress_tokens suppress_tokens
    output_attentions output_hidden_states summary_type summary_use_proj summary_activation
    summary_proj_to_labels summary_first_dropout normalize_before scale_embedding scale_emb dim_model_base
    scale_depth num_labels transformers_js_config static_position_embeddings is_composition unsloth_version
    unsloth_fixed language mm_tokens_per_image freeze_vision torchscript ep_size no_rope_layers
    no_rope_layer_interval attn_temperature_tuning attn_scale floor_scale use_logits_to_keep time_step_min
    time_step_max time_step_floor time_step_init_scheme time_step_limit time_step_scale cutoff_factor
    encoder_layerdrop decoder_layerdrop layerdrop use_mems
    expansion_ratio position_embedding_type is_encoder_decoder
    """.split()
)
_PATTERNS = re.compile(
    r"rope|rotary|dropout|_pdrop$|initializer|init_std|init_method|_eps$|epsilon|_token_id$|_token_index$|softcap"
    r"|aux_loss|_loss_coef$|_drop$|_image_token|^mask_(time|feature)|^spec_augment|_multipliers?$"
)


def is_inert(name: str) -> bool:
    """`name` is known to change no figure, in any family."""
    return name in _NAMES or bool(_PATTERNS.search(name))
